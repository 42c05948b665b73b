"""`interlock audit report` and `verify-report`: write and check a signed report on an instance, a run or a period."""

import json
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.audit.reading import counting, on_disk
from interlock.cli.lib.output import FAILED, AsJson, errors, print_json, say
from interlock.cli.lib.parsing import past
from interlock.cli.lib.projects import named
from interlock.db.audit.reports import Period
from interlock.workers.audit import report_check, reports, signing_keys
from interlock.workers.audit.reports import Made, Wanted
from interlock.workers.client.client import Client
from interlock.workers.settings import settings
from interlock.workers.system import write_once
from interlock.workflows.audit.report import AuditReport
from interlock.workflows.catalogue import catalogue
from interlock.workflows.errors import BadInput
from interlock.workflows.output.counts import number_of
from interlock.workflows.output.escaping import shown
from interlock.workflows.output.suggestions import offered

NEITHER = "name an instance (REF), or a period with --since, --until or both"


def report(
    ref: Annotated[
        str | None,
        typer.Argument(help="Entity id, TYPE/ENTITY_ID if that is ambiguous, or UUID. Without it: a period."),
    ] = None,
    since: Annotated[
        str, typer.Option(metavar="WHEN", help="Begin of the period: 2026-11-01T00:00Z, or 30d for 30 days ago.")
    ] = "",
    until: Annotated[
        str, typer.Option(metavar="WHEN", help="End of the period (exclusive), written like --since. [default: now]")
    ] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the page to this new file.")
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="Maximum number of events.")] = reports.MOST,
    as_json: AsJson = False,
) -> None:
    """Write a signed report on an instance, a run or a period.

    It lists moves, approvals with each vote, overrides, refusals, gates with the tree they ran on, and commits.

    An instance's report covers what belongs to it, too: a run's or workstream's members, a patch's task, workstream and
    gates, and the approvals of all of these. A period's report covers all moves in that time: of all projects, or only
    of --project.

    History is verified first; the report says what was found. The file is a page for people that holds what was signed:
    an in-toto Statement in a DSSE envelope. With --json the bare envelope is printed, for other tools. `interlock audit
    verify-report FILE` checks either without the database.

    Exit code 1: history was changed; the report is written, and says so first.

    \b
    Examples:
      interlock audit report story/S-1 --output S-1.html
      interlock audit report run/nightly --output nightly.html
      interlock audit report --since 30d --output month.html --most 50000
      interlock audit report S-1 --json > S-1.dsse.json
    """
    wanted = _wanted(ref, since, until)
    if output is None and not as_json:
        raise BadInput("say where to write the page (--output FILE), or print the envelope (--json)")
    if output is not None and output.exists():
        raise BadInput(f"{shown(output)} exists already, and is not overwritten")
    with Client() as client, on_disk(), counting("verifying", as_json) as count:
        made = reports.make_report(client.runtime, wanted, most=most, progress=count)
        if output is not None:
            with write_once.put(output) as file:
                file.write(made.page.encode())
    if not print_json(json.loads(made.envelope.text()), as_json) and output is not None:
        _print_made(made, output)
    for problem in made.report.verification.problems:
        say(("changed", "bold red"), f" {problem.instance}{problem.place}: {problem.message}", to=errors)
    raise typer.Exit(FAILED if made.report.verification.problems else 0)


def _wanted(ref: str | None, since: str, until: str) -> Wanted:
    if (ref is None) == (not since and not until):
        raise BadInput(NEITHER if ref is None else f"{NEITHER}, not both")
    if ref is not None:
        return Wanted(ref)
    period = Period(past(since, "--since") if since else None, past(until, "--until") if until else None)
    if period.since and period.until and period.since >= period.until:
        raise BadInput("--since must be before --until")
    return Wanted(period=period, project=named())


def _print_made(made: Made, output: Path) -> None:
    report = made.report
    say(f"reported {number_of(len(report.moves), 'event')} of {number_of(len(report.instances), 'instance')}: {output}")
    say(f"  check it with: {offered('audit', 'verify-report', output)}")


def verify_report(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A report: the page, or the envelope.")
    ],
    trusted: Annotated[
        list[Path] | None, typer.Option("--trust", exists=True, help="Trust this public key (repeatable).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check a report from its file alone: needs neither the database nor the installation that made it.

    It checks that a trusted key signed it; that each move's hash matches its fields and follows the one before; that
    each move is legal; that approvals, gates and the other lists agree with the moves; and that the page shows exactly
    what was signed.

    Exit code 0: all of that holds. 1: something was changed, or no trusted key signed it. 2: the file is not a report.

    \b
    Examples:
      interlock audit verify-report S-1.html
      interlock audit verify-report S-1.html --trust anchor.pub      on a host without the installation's keys
      git notes --ref=interlock show COMMIT > note.json && interlock audit verify-report note.json
    """
    chosen = settings()
    keys = signing_keys.trusted_keys(chosen.signing_directory, *(trusted or ()))
    try:
        with counting("checking", as_json) as count:
            checked = report_check.check(report_check.text_of(file), keys, catalogue(chosen.definitions), count)
    except OSError as error:
        raise BadInput(f"{shown(file)} cannot be read: {error.strerror or error}") from error
    answer = {"ok": not checked.findings, "findings": checked.findings, **_summary(checked.report)}
    if not print_json(answer, as_json):
        for each in checked.findings:
            say(f"{file}: {each}")
        _print_checked(bool(checked.findings), checked.report)
    raise typer.Exit(FAILED if checked.findings else 0)


def _summary(report: AuditReport | None) -> dict[str, object]:
    if report is None:
        return {"about": None}
    counts = {"instances": len(report.instances), "events": len(report.moves)}
    return {"about": report.scope.name, "generated_at": report.generated_at, **counts}


def _print_checked(wrong: bool, report: AuditReport | None) -> None:
    verdict = ("do not rely on it", "bold red") if wrong else ("ok", "green")
    if report is None:
        say(verdict)
    else:
        say(verdict, f": {report.scope.name}, made {report.generated_at}, {number_of(len(report.moves), 'event')}")
