"""`interlock supervise worker`: create, start, pause, resume, end and recover supervised workers."""

from collections.abc import Callable
from typing import Annotated

import typer

from interlock.cli.jobs.answers import (
    By,
    Error,
    Ref,
    RequestId,
    answer,
    lists,
    ordering,
    recovered,
    shows,
    simple,
)
from interlock.cli.lib.output import AsJson
from interlock.workers.client.client import Client
from interlock.workers.supervision.actions import SUPERVISOR, ActionOrder, Answer
from interlock.workers.supervision.recovery import Recovery, WorkerError, recover_worker
from interlock.workers.supervision.supervised_workers import Supervisor

Resources = Annotated[
    list[str] | None, typer.Option("--resource", help="A resource it holds while it runs; repeatable.")
]


app = typer.Typer(
    no_args_is_help=True, help="Commands for supervisors: on supervised workers here, on jobs in `interlock job`."
)
workers = typer.Typer(
    no_args_is_help=True, help="Supervised workers: IDLE, RUNNING, PAUSED, and three terminal states."
)
app.add_typer(workers, name="worker")


@workers.command("create")
def create_worker(
    workspace: Annotated[str, typer.Option(help="Its workspace; default: the project.")] = "",
    by: By = SUPERVISOR,
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> None:
    """Create an idle worker.

    \b
    Example:
      interlock supervise worker create --project billing
    """
    order = ActionOrder(by, None, request_id)
    answer(lambda c: Supervisor(c).create(workspace_id=workspace or None, order=order), as_json)


@workers.command("start")
@ordering(answer)
def start_worker(order: ActionOrder, ref: Ref, resource: Resources = None) -> Callable[[Client], Answer]:
    """Start an idle worker.

    \b
    Example:
      interlock supervise worker start w_1a2b --resource gpu-0
    """
    return lambda c: Supervisor(c).start(ref, order, resources=resource)


@workers.command("resume")
@ordering(answer)
def resume_worker(order: ActionOrder, ref: Ref, resource: Resources = None) -> Callable[[Client], Answer]:
    """Resume a paused worker.

    \b
    Example:
      interlock supervise worker resume w_1a2b
    """
    return lambda c: Supervisor(c).resume(ref, order, resources=resource)


@workers.command("fail")
@ordering(answer)
def fail_worker(order: ActionOrder, ref: Ref, error: Error = "") -> Callable[[Client], Answer]:
    """Report that a running worker failed with an error that cannot be retried.

    \b
    Example:
      interlock supervise worker fail w_1a2b --error "out of memory"
    """
    return lambda c: Supervisor(c).fail(ref, order, error=error or None)


@workers.command("recover")
@ordering(recovered)
def recover(
    order: ActionOrder,
    ref: Ref,
    kind: Annotated[WorkerError, typer.Argument(help="What went wrong.")],
    error: Error = "",
) -> Callable[[Client], Recovery]:
    """Handle a worker's error by the recovery table of docs/spec/supervision.md.

    \b
    transient_network    retry, up to three times; then the worker fails
    resource_exhaustion  the worker is paused and releases its resources
    unrecoverable        the worker fails
    supervisor_timeout   the worker is terminated

    \b
    Example:
      interlock supervise worker recover w_1a2b transient_network --error "reset by peer" --request-id try-1
    """
    return lambda c: recover_worker(c, ref, kind, order, error=error or None)


simple(workers, "supervise worker pause", "Pause a running worker.", Supervisor, Supervisor.pause)
simple(
    workers,
    "supervise worker complete",
    "Report that a worker has done all its tasks.",
    Supervisor,
    Supervisor.complete,
)
simple(workers, "supervise worker terminate", "Stop a worker by force.", Supervisor, Supervisor.terminate)
shows(workers, "supervise worker show w_1a2b", "Show a supervised worker.", Supervisor)
lists(workers, "supervise worker list", "List the newest supervised workers.", "supervised_worker", Supervisor)
