"""`interlock restore`: restore a backup, and verify it."""

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from interlock.cli.lib.output import FAILED, AsJson, print_json, print_table, say
from interlock.cli.lib.progress_bar import bar, on
from interlock.db import migrate
from interlock.supervisor.backup import lost_events
from interlock.supervisor.backup.restore import restore as restored
from interlock.supervisor.embedded import running
from interlock.workers.audit import signing_keys
from interlock.workers.audit.verify import verify
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings, settings
from interlock.workflows.errors import BadInput
from interlock.workflows.output.counts import number_of
from interlock.workflows.output.suggestions import offered, with_setting

TRUST_ANYONE = (
    "Restore a backup that no trusted key signed. Nothing then proves that it is yours and unchanged, and functions "
    "and triggers in its database run as the servers' user."
)
NAMED = 20


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="A directory that `interlock backup take` made.")],
    into: Annotated[Path | None, typer.Option(metavar="HOME", help="An empty home. [INTERLOCK_HOME]")] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Journal of the lost home (directory or file), to list the lost events.")
    ] = None,
    trust: Annotated[
        list[Path] | None,
        typer.Option(exists=True, metavar="FILE", help="A public key to trust (*.pub)."),
    ] = None,
    trust_anyone: Annotated[bool, typer.Option("--trust-anyone", help=TRUST_ANYONE)] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into an empty home: check it, restore it completely or not at all, then verify it.

    The backup must be signed by a trusted key: one in this home's `keys`, or one given with --trust. Configuration is
    not restored.

    Lists the events that were committed after the backup, as far as the journal or the stream of the lost home knows
    them. Exit code 1: history does not verify. To start the restored home: INTERLOCK_HOME=HOME interlock up --detach

    \b
    Examples:
      interlock restore .interlock/backups/interlock-20261121T220000000000Z --into ../again
      interlock restore BACKUP --into ../again --journal .interlock/.state
      interlock restore BACKUP --trust /mnt/safe/0123456789abcdef.pub    on another machine
    """
    chosen = settings()
    if trust and trust_anyone:
        raise BadInput("--trust FILE and --trust-anyone exclude each other: give one of them")
    for key in trust or ():
        if key.resolve().is_relative_to(source.resolve()):
            raise BadInput(
                f"--trust {key}: this key came with the backup and proves nothing. Give one that you kept elsewhere, "
                "or --trust-anyone to restore a backup by anybody"
            )
    own = {"home": into or chosen.home, "database_url": None, "broker_url": None}
    home = chosen.model_copy(update=own | {"anchor_directories": ()})  # copies are newer than the backup
    keys = None if trust_anyone else signing_keys.trusted_keys(chosen.signing_directory, *(trust or ()))
    with bar("checking", as_json) as shown:
        found = restored(home, source, migrate.revisions(), keys, on(shown))
    with running(home, keep=True):
        runtime = Runtime(home)
        try:
            answer = _examine(runtime, chosen, journal, datetime.fromisoformat(found.taken_at))
        finally:
            runtime.close()
    answer |= {"home": str(home.home.resolve()), "taken_at": found.taken_at}
    if not print_json(answer, as_json):
        _print_result(answer)
    raise typer.Exit(0 if answer["ok"] and answer["events"] >= found.events_before else FAILED)


def _examine(runtime: Runtime, chosen: Settings, journal: Path | None, taken_at: datetime) -> dict[str, Any]:
    migrate.upgrade(runtime.owned)
    verdict = verify(runtime, every_line=False)  # events after the backup are lost, not cut out
    published = list(lost_events.of_journal(journal, taken_at)) if journal else []
    if chosen.redis_url or chosen.broker_url:  # an external stream, which outlived the home
        redis = Runtime(chosen).redis
        published += lost_events.of_stream(redis, taken_at) if redis else ()
    lost = {each.event_id: each for each in lost_events.lost(runtime.database, published)}
    return {
        "ok": verdict.ok,
        "instances": verdict.instances,
        "events": verdict.transitions,
        "problems": verdict.problems,
        "journal_compared": bool(journal) or bool(published),
        "lost": [asdict(each) for each in lost.values()],
    }


def _print_result(answer: dict[str, Any]) -> None:
    message = ("verified", "green") if answer["ok"] else (number_of(len(answer["problems"]), "problem"), "bold red")
    has = f"{number_of(answer['instances'], 'instance')}, {number_of(answer['events'], 'event')}"
    say(message, f": {has}, as of {answer['taken_at']}")
    for problem in answer["problems"][:NAMED]:
        say(f"  {problem.instance} {problem.seq or ''}: {problem.message}")
    gone = answer["lost"]
    if gone:
        print_table(
            f"{number_of(len(gone), 'event')} came after it, now lost",
            gone[:NAMED],
            ("at", "entity", "trigger", "to_state"),
        )
    elif not answer["journal_compared"]:
        say("Events after the backup are unknown: give --journal to list them")
    else:
        say("no event of the journal or the stream is missing")
    say("agents may repeat the triggers they fired since: request ids make that harmless")
    for command in (offered("audit", "key", new=True), offered("up", detach=True)):
        say(f"  $ {with_setting('INTERLOCK_HOME', answer['home'], command)}")
