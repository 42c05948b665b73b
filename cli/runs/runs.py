"""`interlock run`: carry out plans, and look at what is carried out."""

from pathlib import Path
from typing import Annotated, Any

import typer

from cli.default_command import DefaultCommand
from cli.following import LINES, OUTCOMES, follow
from cli.output import AsJson, console, print_json
from cli.plan_file import directory_of, read
from cli.run_tree import draw
from cli.triggers import EXIT
from db import plans
from db.connect import transaction
from workers.client import Client
from workers.orchestration.resumption import resume as resume_run
from workers.orchestration.submission import Run, submit
from workers.orchestration.watching import Watch
from workflows.plan.read import plan_json_schema

HELP = """Carry out a plan: workstreams of tasks, gates and patches (docs/plans.md), shown live until they end.

\b
Exit code:
  0 succeeded  1 failed  2 refused (a plan with faults, an unknown run)
  3 canceled   124 out of --timeout  130 Ctrl-C (both: the run goes on)

\b
Examples:
  interlock run examples/plans/hello.yaml
  interlock run plan.yaml --name nightly --detach
  interlock run start --help                        all its options
  interlock run check plan.yaml                     only look for faults
  interlock run watch nightly
  interlock run cancel nightly --by ann --reason "wrong branch"
  interlock run resume nightly                      what is left, anew
  interlock run --schema > plan.schema.json         for editors
"""
START_HELP = """Run the plan FILE; `interlock run FILE` is the same.

\b
Examples:
  interlock run plan.yaml --priority 10
  interlock run plan.yaml --detach --json | jq -r .name
  generate_plan | interlock run -
"""

app = typer.Typer(cls=DefaultCommand, help=HELP, no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", help="YAML or JSON; `-` is standard input.")]
Ref = Annotated[str, typer.Argument(metavar="RUN", help="The run's name, or its UUID.")]
By = Annotated[str, typer.Option(help="Who runs it.")]
Name = Annotated[str | None, typer.Option(help="The run's name, unique in its project; default: made from the plan's.")]
Detach = Annotated[
    bool,
    typer.Option("--detach/--watch", "-d/-w", help="Return once it is accepted, or show it live until it ends."),
]
Timeout = Annotated[float, typer.Option(min=0, help="Stop watching after so many seconds; 0: never. The run goes on.")]


def _schema(wanted: bool) -> None:
    if wanted:
        print_json(plan_json_schema())
        raise typer.Exit


@app.callback()
def group(
    schema: Annotated[
        bool, typer.Option("--schema", is_eager=True, callback=_schema, help="Print the JSON Schema of plans.")
    ] = False,
) -> None:
    """Options of the group itself."""


@app.command(help=START_HELP)
def start(
    file: File,
    name: Name = None,
    priority: Annotated[int, typer.Option(help="Among runs, -1000 to 1000; higher goes first.")] = 0,
    by: By = "operator",
    detach: Detach = False,
    timeout: Timeout = 0.0,
    as_json: AsJson = False,
) -> None:
    """Run a plan."""
    plan = read(file)
    with Client() as client:
        run = submit(client.runtime, plan, by=by, directory=directory_of(file), run_name=name, priority=priority)
        code = _accompany(client, run, detach=detach, timeout=timeout, as_json=as_json)
    raise typer.Exit(code)


@app.command()
def check(file: File, as_json: AsJson = False) -> None:
    """Look for faults in a plan, and say what it comes to. Needs no server.

    \b
    Example:
      interlock run check plan.yaml
    """
    plan = read(file)
    if as_json:
        print_json(plan.summary())
    else:
        console.print(f"[green]ok[/] {plan.summary()}", highlight=False, soft_wrap=True)


@app.command()
def watch(ref: Ref, timeout: Timeout = 0.0, as_json: AsJson = False) -> None:
    """Follow a run until it ends; with --json one object a line for each move. Exit code as of `interlock run`.

    \b
    Example:
      interlock run watch nightly --json
    """
    with Client() as client:
        code = follow(_watch(client, ref), timeout_seconds=timeout, as_json=as_json)
    raise typer.Exit(code)


@app.command()
def show(ref: Ref, as_json: AsJson = False) -> None:
    """Show where a run stands; with --json everything that is known of it.

    \b
    Example:
      interlock run show nightly
    """
    with Client() as client:
        view = _watch(client, ref).view
    if as_json:
        print_json(view.as_tree())
    else:
        console.print(draw(view, lines=LINES))


@app.command()
def cancel(
    ref: Ref,
    by: Annotated[str, typer.Option(help="Who cancels it.")],
    reason: Annotated[str, typer.Option(help="Why; kept in its history.")] = "",
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait until it is applied.")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Cancel a run: what runs is stopped, what has not begun never does. Exit code 2: it had ended already.

    \b
    Example:
      interlock run cancel nightly --by ann --reason "wrong branch"
    """
    with Client() as client:
        with transaction(client.runtime.database) as connection:
            run = plans.find_run(connection, ref)
        fired = client.fire(run["id"], "cancel", by=by, data={"reason": reason} if reason else {})
        receipt = client.wait([fired.request_id], timeout_seconds=timeout)[0]
    result: Any = receipt.result or {}
    if as_json:
        print_json(receipt)
    elif receipt.status == "applied":
        console.print(f"run {run['entity_id']} is [yellow]canceled[/]; it was {result['from']}", highlight=False)
    else:
        console.print(f"{receipt.status}: {receipt.error or result.get('message', '')}", highlight=False, markup=False)
    raise typer.Exit(EXIT.get(receipt.status, 0))


@app.command()
def resume(
    ref: Ref,
    name: Name = None,
    by: By = "operator",
    detach: Detach = False,
    timeout: Timeout = 0.0,
    as_json: AsJson = False,
) -> None:
    """Run again what a failed or canceled run did not complete: a new run; completed workstreams are carried over.

    \b
    Example:
      interlock run resume nightly --detach
    """
    with Client() as client:
        run = resume_run(client.runtime, ref, by=by, run_name=name)
        code = _accompany(client, run, detach=detach, timeout=timeout, as_json=as_json)
    raise typer.Exit(code)


def _watch(client: Client, ref: str) -> Watch:
    with transaction(client.runtime.database) as connection:
        run = plans.find_run(connection, ref)
    return Watch(client.runtime, run["id"])


def _accompany(client: Client, run: Run, *, detach: bool, timeout: float, as_json: bool) -> int:
    """What follows once a run is accepted; the exit code."""
    if not detach:
        watching = Watch(client.runtime, run.id)
        code = follow(watching, timeout_seconds=timeout, quiet=as_json)
        if as_json:
            print_json(watching.view.as_tree())
        elif code in OUTCOMES.values():
            console.print(f"run {run.name} {watching.view.run['state']}", highlight=False, soft_wrap=True)
        return code
    if as_json:
        print_json(run)
    else:
        console.print(f"run {run.name} is accepted; interlock run watch {run.name}", highlight=False, soft_wrap=True)
    return 0
