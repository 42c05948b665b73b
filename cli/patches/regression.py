"""`interlock regression`: which patch broke it (SSOT 2.5.4)."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli.ending import ending_well
from cli.output import AsJson, console, errors, print_json
from workers.client import Client
from workers.orchestration.regression import find_regression
from workflows.errors import BadInput

FIND_HELP = """Find the patch of a run or workstream that broke something, by bisection: COMMAND is run in a worktree
of its own, which is gone afterwards. Exit code 0 of COMMAND: good, 125 (126, 127: it cannot be run): cannot tell, any
other: bad. What it finds it tries once more: a COMMAND that says now this, now that of the same tree accuses nobody.

\b
Exit code: 0 found, 2 nothing to find (COMMAND passes after them all, fails before the first, or is flaky), 1 failed.

\b
Examples:
  interlock regression find --run night-7 --gate 'pytest -q tests/billing'
  interlock regression find --workstream night-7/api --gate 'make check' --json | jq -r .entry
"""

app = typer.Typer(no_args_is_help=True, help="Regressions: which patch broke it.")


@app.callback()
def group() -> None:
    """One command, and named all the same."""


@app.command("find", help=FIND_HELP)
def find(
    gate: Annotated[str, typer.Option(metavar="COMMAND", help="A shell line that passes where all is well.")],
    run: Annotated[str, typer.Option(help="The run: its name or UUID.")] = "",
    workstream: Annotated[str, typer.Option(help="Or a workstream: RUN/WORKSTREAM or its UUID.")] = "",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for each try; then it counts as bad.")] = 1800.0,
    as_json: AsJson = False,
) -> None:
    """Find a regression."""
    if bool(run) == bool(workstream):
        raise BadInput("say --run or --workstream")
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
    if as_json:
        print_json(asdict(found))
        return
    whose = f"patch [bold]{found.entry}[/]" if found.entry else "a commit that is no patch of it"
    console.print(f"{whose} broke it: {found.commit_sha} {found.subject}", highlight=False, soft_wrap=True)
    if found.among:
        console.print(
            f"or one of {', '.join(found.among)}, of which it cannot be told", highlight=False, soft_wrap=True
        )
    if found.entry:
        says = f"take it back: interlock compensation plan {found.entry} --output plan.json"
        console.print(says, highlight=False, markup=False, soft_wrap=True)
