"""`interlock definitions handover`: live instances go on in another system."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from interlock.cli.definitions.exporting import export_files, make
from interlock.cli.lib import completing
from interlock.cli.lib.options import person
from interlock.cli.lib.output import REFUSED, AsJson, print_json, print_table, say
from interlock.cli.lib.progress_bar import bar, on
from interlock.cli.lib.projects import OnlyProject
from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.operations import handovers
from interlock.db.operations.handovers import Choice
from interlock.workers.client.client import Client
from interlock.workers.definitions import handover_file
from interlock.workers.definitions.handover import HandoverMoves, freeze, settle
from interlock.workers.definitions.handover_file import HandoverFile
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workflows.catalogue import Catalogue
from interlock.workflows.definition import Definition
from interlock.workflows.errors import BadInput
from interlock.workflows.forms.forms import FORMS
from interlock.workflows.forms.parts import called, file_name
from interlock.workflows.forms.start_log import StartLog, held_log, log_of

HELP = """\
Freeze live instances here, and write them with their verified history and the Temporal form of their definition, to be
started there. What is frozen moves no more: later triggers are rejected, and those that were accepted go with it.

After an interruption, run the same command again. Then run a worker of the exported program, start what the file has
(`python story_1_0_0.py start FILE`), and say with --confirm what lives there now, or take the rest back with --back.

\b
Examples:
  interlock definitions handover story --output handover --reason "to Temporal" --dry-run
  interlock definitions handover story@1.0.0 --project billing --output handover --reason "to Temporal"
  interlock definitions handover story --confirm --output handover --reason "started there"
  interlock definitions handover story --back --output handover --reason "not today"
  interlock definitions handover story --back --without-log --output handover --reason "never started"
"""
NAMED = 1_000  # rows of the table of instances that stay


@dataclass(frozen=True, slots=True)
class HandoverResult:
    """What was done with the instances of one version; `written`: the file of those that are frozen now."""

    definition: str
    dry_run: bool
    moved: HandoverMoves
    written: HandoverFile | None = None


def handover(
    name: Annotated[
        str,
        typer.Argument(
            metavar="TYPE[@VERSION]", help="Without VERSION: all its versions.", autocompletion=completing.types
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory of the files; it is made.")],
    reason: Annotated[str, typer.Option(help="Why; stored in each handover's history.")],
    by: Annotated[str, person("The operator.")],
    some: Annotated[
        list[str] | None, typer.Option("--only", metavar="REF", help="Freeze only these instances.")
    ] = None,
    confirming: Annotated[bool, typer.Option("--confirm", help="Record for good what was started there.")] = False,
    back: Annotated[bool, typer.Option("--back", help="Let go on here what was not started there.")] = False,
    without_log: Annotated[
        bool, typer.Option("--without-log", help="With --back: nothing was ever started, so there is no log of it.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Try each; change and write nothing.")] = False,
    project: OnlyProject = None,
    as_json: AsJson = False,
) -> None:
    """Hand instances over."""
    if confirming + back + bool(some) > 1:
        raise BadInput("give one of --confirm, --back and --only, or none")
    order = OverrideOrder(by, reason, dry_run)
    with Client(project=project) as client:
        only = _ids(client, some)
        of_each = [
            _OfVersion(client.runtime, each, project, order, output, as_json)
            for each in _versions(client.runtime.catalogue, name)
        ]
        done = [
            each.confirm() if confirming else each.take_back(without_log=without_log) if back else each.freeze(only)
            for each in of_each
        ]
    if not print_json([asdict(each) for each in done], as_json):
        for each in done:
            _print_result(each, "gave back" if back else "confirmed" if confirming else "froze")
    raise typer.Exit(REFUSED if any(each.moved.stays for each in done) else 0)


def _versions(known: Catalogue, name: str) -> list[Definition]:
    """What TYPE[@VERSION] names: without a version, all that are known."""
    found = known.called(name)
    return [each for each in known if each.type == found.type and ("@" not in name or each is found)]


def _ids(client: Client, refs: Sequence[str] | None) -> list[UUID] | None:
    with transaction(client.runtime.database) as connection:
        return [instances.find(connection, ref, client.project)["id"] for ref in refs] if refs else None


@dataclass(frozen=True, slots=True)
class _OfVersion:
    """The instances of one version, of a project or all."""

    runtime: Runtime
    definition: Definition
    project: str | None
    order: OverrideOrder
    output: Path
    quiet: bool

    @property
    def _file(self) -> Path:
        return self.output / file_name(self.definition, ".jsonl")

    def _choice(self, only: Sequence[UUID] | None = None) -> Choice:
        return Choice(self.definition.type, self.definition.version, self.project, only)

    def freeze(self, only: Sequence[UUID] | None) -> HandoverResult:
        """Freeze them, or only some, and write all that are frozen."""
        if not self.order.dry_run:
            make(self.output)  # before anything is frozen
        with bar(f"freezing {called(self.definition)}", self.quiet) as shown:
            moved = freeze(self.runtime, self._choice(only), self.order, on(shown))
        if self.order.dry_run:
            return HandoverResult(called(self.definition), True, moved)
        export_files([self.definition], FORMS["temporal"], self.output)
        return HandoverResult(called(self.definition), False, moved, self._write())

    def _write(self) -> HandoverFile:
        """Write all that are frozen, also of other projects."""
        every = Choice(self.definition.type, self.definition.version)
        with bar(f"writing {called(self.definition)}", self.quiet) as shown:
            return handover_file.write_frozen(self.runtime, every, self._file, on(shown))

    def confirm(self) -> HandoverResult:
        """Confirm those that were started."""
        return self._settle(back=False)

    def take_back(self, *, without_log: bool) -> HandoverResult:
        """Give back those that were not started. They are not in the file any more, or somebody could start them."""
        if not self._frozen():
            return HandoverResult(called(self.definition), self.order.dry_run, HandoverMoves())
        if not (without_log or log_of(self._file).exists()):
            why = "bring it from where `start` was run; if it never was, add --without-log"
            raise BadInput(f"{log_of(self._file)}, which says what was started, is missing: {why}")
        if self.order.dry_run:
            return self._settle(back=True)
        make(self.output)
        with held_log(self._file):
            self._file.unlink(missing_ok=True)
            return replace(self._settle(back=True), written=self._write())

    def _frozen(self) -> int:
        with transaction(self.runtime.database) as connection:
            return handovers.count_frozen(connection, self._choice())

    def _settle(self, *, back: bool) -> HandoverResult:
        log = StartLog.of(self._file)
        with bar(f"{'taking back' if back else 'confirming'} {called(self.definition)}", self.quiet) as shown:
            moved = settle(self.runtime, self._choice(), self.order, log, back=back, progress=on(shown))
        return HandoverResult(called(self.definition), self.order.dry_run, moved)


def _print_result(done: HandoverResult, verb: str) -> None:
    moved, written = done.moved, done.written
    would = "dry run: " if done.dry_run else ""
    say(f"{would}{verb} {moved.moved:,} of {moved.found:,}: {done.definition}")
    if written is not None:
        say(f"{written.instances:,} frozen instances are in {written.path}")
        if written.links_that_stay:
            say(f"{written.links_that_stay:,} of their links lead to live instances that stay: nothing follows there")
    if moved.stays:
        print_table(f"{len(moved.stays):,} stay", map(asdict, moved.stays[:NAMED]), ("entity_id", "state", "why"))
