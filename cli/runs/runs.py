"""`interlock run`: run plans; check, watch, show, cancel, retry and resume runs."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.lib import completing
from interlock.cli.lib.groups import DefaultCommand, instead
from interlock.cli.lib.moving import settled, tell
from interlock.cli.lib.options import person
from interlock.cli.lib.output import AsJson, console, errors, print_json, say
from interlock.cli.lib.overriding import Act, overriding
from interlock.cli.lib.projects import require_same, unusual
from interlock.cli.runs.lines import do_again
from interlock.cli.runs.logs import logs
from interlock.cli.runs.plan_file import directory_of, read
from interlock.cli.runs.tree import print_whole
from interlock.cli.runs.watch import LINES, OUTCOMES, follow
from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.workers.client.client import Client
from interlock.workers.effects.plan_files import patches, require_sandbox
from interlock.workers.isolation.in_force import reported
from interlock.workers.orchestration.resume import resume as resume_run
from interlock.workers.orchestration.run_view import Watch
from interlock.workers.orchestration.submission import Run, submit
from interlock.workers.overrides.retry_workstream import retry_workstream
from interlock.workers.settings import settings
from interlock.workflows.input import names
from interlock.workflows.output.suggestions import offered
from interlock.workflows.plan.read import plan_json_schema

HELP = """Run a plan of workstreams, tasks, gates and patches (docs/plans.md), and show it live until it ends.

\b
Exit code:
  0 succeeded  1 failed  2 refused (a plan with faults, an unknown run)
  3 canceled   124 --timeout reached  130 Ctrl-C (both: the run continues)

\b
Examples:
  interlock run examples/plans/hello.yaml
  interlock run plan.yaml --name nightly --detach
  interlock run start --help                        all options
    interlock run check plan.yaml                     only check the plan
  interlock run watch nightly
  interlock run logs nightly/build/compile          what the task printed
  interlock run cancel nightly --by ann --reason "wrong branch"
  interlock run retry nightly/build --reason WHY    do a failed workstream again, in the same run
  interlock run resume nightly                      once it has ended: run what did not complete
  interlock run --schema > plan.schema.json         for editors
"""

app = typer.Typer(cls=DefaultCommand, help=HELP, no_args_is_help=True)
app.command()(logs)

File = Annotated[Path, typer.Argument(metavar="FILE", help="YAML or JSON; `-` is standard input.")]
Ref = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's name or UUID.", autocompletion=completing.named("run"))
]
By = Annotated[str, person("Who runs it; stored in its history.")]
Name = Annotated[
    str | None, typer.Option(help="The run's name, unique in its project; default: derived from the plan's.")
]
Detach = Annotated[
    bool,
    typer.Option("--detach/--watch", "-d/-w", help="Return once the run is accepted, or show it live until it ends."),
]
Timeout = Annotated[
    float, typer.Option(min=0, help="Seconds after which to stop watching; 0: never. The run continues.")
]


def _schema() -> None:
    print_json(plan_json_schema())


@app.callback()
def group(
    schema: Annotated[bool, instead("--schema", _schema, "Print the JSON Schema of plans.")] = False,
) -> None:
    """The options of the group itself."""


@app.command()
def start(
    file: File,
    by: By,
    name: Name = None,
    priority: Annotated[int, typer.Option(help="Priority among runs, -1000 to 1000; higher runs first.")] = 0,
    detach: Detach = False,
    timeout: Timeout = 0.0,
    as_json: AsJson = False,
) -> None:
    """Run the plan FILE. `interlock run FILE` is the same.

    \b
    Examples:
      interlock run plan.yaml --priority 10
      interlock run plan.yaml --detach --json | jq -r .name
      generate_plan | interlock run -
    """
    plan = read(file)
    require_same(plan.project, f"the plan {plan.name}")
    with Client() as client:
        run = submit(client.runtime, plan, by=by, directory=directory_of(file), run_name=name, priority=priority)
        if not as_json:
            for each in reported(client.runtime.settings):
                say((each.message, "dim"), to=errors)
        code = _accompany(client, run, detach=detach, timeout=timeout, as_json=as_json)
    raise typer.Exit(code)


@app.command()
def check(file: File, as_json: AsJson = False) -> None:
    """Check a plan, its patches and the paths it asks to read, and summarize it. Needs no server.

    \b
    Example:
      interlock run check plan.yaml
    """
    plan = read(file)
    folder = directory_of(file).resolve()
    require_sandbox(plan, folder, settings())
    patches(plan, folder)
    if not print_json(plan.summary(), as_json):
        say(("ok", "green"), f" {plan.summary()}")


@app.command()
def watch(ref: Ref, timeout: Timeout = 0.0, as_json: AsJson = False) -> None:
    """Follow a run until it ends; with --json, print one object per line for each move. Exit codes as `interlock run`.

    \b
    Example:
      interlock run watch nightly --json
    """
    with Client() as client:
        code = follow(_watch(client, ref), timeout_seconds=timeout, as_json=as_json)
    raise typer.Exit(code)


@app.command()
def show(ref: Ref, as_json: AsJson = False) -> None:
    """Show a run's current state as a tree; with --json, everything that is known about it.

    \b
    Example:
      interlock run show nightly
    """
    with Client() as client:
        view = _watch(client, ref).view
    if as_json:
        print_json(view.as_tree())
    else:
        print_whole(view, lines=LINES)


@app.command()
def cancel(
    ref: Ref,
    by: Annotated[str, person("Who cancels it; stored in its history.")],
    reason: Annotated[str, typer.Option(help="Why; stored in its history.")],
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the cancellation to be applied.")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Cancel a run: running tasks are stopped, pending ones never start. Exit code 2: it had already ended.

    \b
    Example:
      interlock run cancel nightly --by ann --reason "wrong branch"
    """
    why = names.reason("reason", reason)
    with Client() as client:
        with transaction(client.runtime.database) as connection:
            run = instances.find(connection, ref, client.project, "run")
        receipt = settled(client, run["id"], "cancel", by=by, reason=why, timeout=timeout)
    was = (receipt.result or {}).get("from")
    applied = (f"run {run['entity_id']} is ", ("canceled", "yellow"), f"; it was {was}")
    tell(receipt, applied, asdict(receipt) | {"by": by, "reason": why}, as_json)


@app.command()
def resume(
    ref: Ref,
    by: By,
    name: Name = None,
    detach: Detach = False,
    timeout: Timeout = 0.0,
    as_json: AsJson = False,
) -> None:
    """Start a new run of what a failed or canceled run did not complete; completed workstreams are carried over.

    \b
    Example:
      interlock run resume nightly --detach
    """
    with Client() as client:
        run = resume_run(client.runtime, ref, by=by, run_name=name)
        code = _accompany(client, run, detach=detach, timeout=timeout, as_json=as_json)
    raise typer.Exit(code)


@app.command()
@overriding
def retry(
    ref: Annotated[
        str, typer.Argument(metavar="RUN/WORKSTREAM", help="The workstream: NAME, workstream/NAME or UUID.")
    ],
) -> Act:
    """Do a failed or cancelled workstream again while its run goes on: a new one in its place, with new tasks and
    gates, on a new branch. Workstreams that were cancelled or skipped only because of it are made anew, too. Once the
    run has ended, use `interlock run resume`. For operators. Exit code 2: refused, nothing was changed.

    \b
    Examples:
      interlock run retry nightly/api --reason 'the disk is no longer full' --dry-run
      interlock run retry nightly/api --reason 'the disk is no longer full'
    """
    return lambda runtime, order: retry_workstream(runtime, ref, order)


def _watch(client: Client, ref: str) -> Watch:
    with transaction(client.runtime.database) as connection:
        run = instances.find(connection, ref, client.project, "run")
    return Watch(client.runtime, run["id"])


def _accompany(client: Client, run: Run, *, detach: bool, timeout: float, as_json: bool) -> int:
    """Follow an accepted run, or report it if detached; returns the exit code."""
    if not detach:
        watching = Watch(client.runtime, run.id)
        code = follow(watching, timeout_seconds=timeout, quiet=as_json)
        if as_json:
            print_json(watching.view.as_tree())
        elif code in OUTCOMES.values():
            say(f"run {run.name} {watching.view.run['state']}")
            if not console.is_terminal:  # there the tree has said it
                for each in do_again(watching.view):
                    say((each.plain, "yellow"))
        return code
    if not print_json(run, as_json):
        say(f"run {run.name} is accepted; {offered('run', 'watch', run.name, project=unusual(run.project))}")
    return 0
