"""`interlock supervise worker`: create, start, pause, resume, end and recover supervised workers."""

from collections.abc import Callable
from typing import Annotated
from uuid import UUID

import typer

from interlock.cli.jobs.answers import (
    By,
    Error,
    Limit,
    Ref,
    RequestId,
    Status,
    answer,
    detail,
    newest,
    ordering,
    recovered,
    simple,
)
from interlock.cli.lib.output import AsJson
from interlock.workers.client.client import Client
from interlock.workers.supervision.actions import SUPERVISOR, Answer, Order
from interlock.workers.supervision.recovery import Recovery, WorkerError, recover_worker
from interlock.workers.supervision.supervised_workers import Supervisor

Resources = Annotated[
    list[str] | None, typer.Option("--resource", help="A resource it holds while it runs; repeatable.")
]

RECOVER_HELP = """Handle a worker's error by the recovery table of docs/spec/supervision.md.

\b
transient_network    retry, up to three times; then the worker fails
resource_exhaustion  the worker is paused and releases its resources
unrecoverable        the worker fails
supervisor_timeout   the worker is terminated

\b
Example:
  interlock supervise worker recover w_1a2b transient_network --error "reset by peer" --request-id try-1
"""

app = typer.Typer(
    no_args_is_help=True, help="Commands for supervisors: on supervised workers here, on jobs in `interlock job`."
)
workers = typer.Typer(
    no_args_is_help=True, help="Supervised workers: IDLE, RUNNING, PAUSED, and three terminal states."
)
app.add_typer(workers, name="worker")


@workers.command("create")
def create_worker(
    project: Annotated[UUID, typer.Option(help="The project's UUID.")],
    workspace: Annotated[str, typer.Option(help="Its workspace; default: the project.")] = "",
    by: By = SUPERVISOR,
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> None:
    """Create an idle worker.

    \b
    Example:
      interlock supervise worker create --project 7a0e0f6e-0d2c-4a77-9a35-3f1b4d1f0c11
    """
    order = Order(by, None, request_id)
    answer(lambda c: Supervisor(c).create(project, workspace_id=workspace or None, order=order), as_json)


@workers.command("start")
@ordering(answer)
def start_worker(order: Order, ref: Ref, resource: Resources = None) -> Callable[[Client], Answer]:
    """Start an idle worker.

    \b
    Example:
      interlock supervise worker start w_1a2b --resource gpu-0
    """
    return lambda c: Supervisor(c).start(ref, order, resources=resource)


@workers.command("resume")
@ordering(answer)
def resume_worker(order: Order, ref: Ref, resource: Resources = None) -> Callable[[Client], Answer]:
    """Resume a paused worker.

    \b
    Example:
      interlock supervise worker resume w_1a2b
    """
    return lambda c: Supervisor(c).resume(ref, order, resources=resource)


@workers.command("fail")
@ordering(answer)
def fail_worker(order: Order, ref: Ref, error: Error = "") -> Callable[[Client], Answer]:
    """Report that a running worker failed with an error that cannot be retried.

    \b
    Example:
      interlock supervise worker fail w_1a2b --error "out of memory"
    """
    return lambda c: Supervisor(c).fail(ref, order, error=error or None)


@workers.command("recover", help=RECOVER_HELP)
@ordering(recovered)
def recover(
    order: Order, ref: Ref, kind: Annotated[WorkerError, typer.Argument(help="What went wrong.")], error: Error = ""
) -> Callable[[Client], Recovery]:
    """Recover from a worker's error."""
    return lambda c: recover_worker(c, ref, kind, order, error=error or None)


simple(
    workers, "supervise worker pause", "Pause a running worker.", lambda c, ref, order: Supervisor(c).pause(ref, order)
)
simple(
    workers,
    "supervise worker complete",
    "Report that a worker has done all its tasks.",
    lambda c, ref, order: Supervisor(c).complete(ref, order),
)
simple(
    workers,
    "supervise worker terminate",
    "Stop a worker by force.",
    lambda c, ref, order: Supervisor(c).terminate(ref, order),
)


@workers.command("show")
def show_worker(ref: Ref, as_json: AsJson = False) -> None:
    """Show a supervised worker.

    \b
    Example:
      interlock supervise worker show w_1a2b
    """
    detail(lambda client: Supervisor(client).show(ref), as_json)


@workers.command("list")
def list_workers(
    status: Status = "",
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List the newest supervised workers.

    \b
    Example:
      interlock supervise worker list --status RUNNING
    """
    newest("supervised_worker", lambda c: Supervisor(c).newest(status=status or None, limit=limit), status, as_json)
