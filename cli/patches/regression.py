"""`interlock regression`: find the patch that broke something (PATCH-14)."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from interlock.cli.lib.output import AsJson, errors, print_json, say
from interlock.cli.lib.signals import ending_well
from interlock.workers.client.client import Client
from interlock.workers.operations.bisect import find_regression
from interlock.workflows.errors import BadInput
from interlock.workflows.output.suggestions import offered

FIND_HELP = """Find the patch of a run or workstream that broke something, by bisection. COMMAND runs in a temporary
worktree. Its exit code 0 means good, 125 (or 126, 127: it cannot be run) means unknown, any other means bad. The result
is tried a second time, so that a flaky COMMAND blames no patch.

\b
Exit code: 0 found, 1 failed, 2 nothing to find (COMMAND passes after all patches, fails before the first, or is flaky).

\b
Examples:
  interlock regression find --run night-7 --gate 'pytest -q tests/billing'
  interlock regression find --workstream night-7/api --gate 'make check' --json | jq -r .entry
"""

app = typer.Typer(no_args_is_help=True, help="Regressions: find the patch that broke something.")


@app.callback()
def group() -> None:
    """Without this callback Typer would drop the name of the group's only command."""


@app.command("find", help=FIND_HELP)
def find(
    gate: Annotated[str, typer.Option(metavar="COMMAND", help="A shell command that passes on a good tree.")],
    run: Annotated[str, typer.Option(help="The run (name or UUID).")] = "",
    workstream: Annotated[str, typer.Option(help="Or a workstream (RUN/WORKSTREAM or UUID).")] = "",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds per try; longer counts as bad.")] = 1800.0,
    as_json: AsJson = False,
) -> None:
    """Find a regression."""
    if bool(run) == bool(workstream):
        raise BadInput("give either --run or --workstream")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = Progress(*columns, console=errors, disable=as_json or not errors.is_terminal)
    with ending_well(), Client() as client, shown as bars:
        bar = bars.add_task("trees tried", total=None)
        found = find_regression(
            client.runtime,
            gate,
            run_ref=run or None,
            workstream_ref=workstream or None,
            timeout_seconds=timeout,
            progress=lambda done, total: bars.update(bar, completed=done, total=total),
        )
    if print_json(asdict(found), as_json):
        return
    culprit = (f"patch {found.entry}", "bold") if found.entry else "a commit that is no patch of it"
    say(culprit, f" broke it: {found.commit_sha} {found.subject}")
    if found.among:
        say(f"or one of {', '.join(found.among)}, which could not be tested")
    if found.entry:
        say(f"roll it back: {offered('compensation', 'plan', found.ledger_id, output='plan.json')}")
