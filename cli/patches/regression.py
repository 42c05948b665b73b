"""`interlock regression`: find the patch that broke something (PATCH-14), and decide on its rollback."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from interlock.cli.lib.moving import settled, tell
from interlock.cli.lib.options import person
from interlock.cli.lib.output import AsJson, errors, print_json, say
from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.workers.client.client import Client
from interlock.workers.operations.bisect import find_regression
from interlock.workers.system.ended_by import ended_by
from interlock.workflows.errors import BadInput
from interlock.workflows.input import names
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

app = typer.Typer(
    no_args_is_help=True, help="Regressions: find the patch that broke something, decide on its rollback."
)

Ref = Annotated[str, typer.Argument(metavar="REGRESSION", help="Its name or UUID; `interlock run show RUN` says it.")]
By = Annotated[str, person("The operator who decides; stored in its history.")]
Why = Annotated[str, typer.Option(help="Why; stored in its history.")]
Timeout = Annotated[float, typer.Option(min=0, help="Seconds to wait for the decision to be applied.")]


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
    with ended_by(), Client() as client, shown as bars:
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


def _decision(trigger: str, summary: str, because: str) -> None:
    """Add the command that fires `trigger` on a regression; `because`: the reason in its example."""

    def command(ref: Ref, by: By, reason: Why, timeout: Timeout = 30.0, as_json: AsJson = False) -> None:
        why = names.reason("reason", reason)
        with Client() as client:
            with transaction(client.runtime.database) as connection:
                found = instances.find(connection, ref, client.project, "regression")
            receipt = settled(client, found["id"], trigger, by=by, reason=why, timeout=timeout)
        applied = (f"regression {found['entity_id']} is ", ((receipt.result or {}).get("to", ""), "bold"))
        tell(receipt, applied, asdict(receipt) | {"by": by, "reason": why}, as_json)

    example = f'interlock regression {trigger} night-7/check/all:regression --by ann --reason "{because}"'
    only = "Only operators may. Exit code 2: nothing is proposed any more."
    app.command(trigger, help=f"{summary}\n\n{only}\n\n\b\nExample:\n  {example}")(command)


_decision(
    "approve",
    "Approve the rollback that a regression proposes: workers then revert the patch, and the gates have to pass.",
    "release is due",
)
_decision("reject", "Reject the rollback that a regression proposes: the patch stays.", "fixed on main")
