"""`interlock supervise worker`: a supervisor's hand on its workers (MVP, section 1)."""

from typing import Annotated
from uuid import UUID

import typer

from cli.output import AsJson
from cli.supervised import By, Error, Limit, Reason, Ref, RequestId, Status, answer, detail, newest, recovered, simple
from workers.supervision.acting import SUPERVISOR, Order
from workers.supervision.recovery import WorkerError, recover_worker
from workers.supervision.supervisor import Supervisor

Resources = Annotated[list[str] | None, typer.Option("--resource", help="What it holds while it runs; repeatable.")]

RECOVER_HELP = """Do about a worker's error what the MVP's table says (seed 002, section 4.1).

\b
transient_network    try again, three times; then it fails
resource_exhaustion  pause it; it gives back what it holds
unrecoverable        it fails
supervisor_timeout   terminate it

\b
Example:
  interlock supervise worker recover w_1a2b transient_network --error "reset by peer" --request-id try-1
"""

app = typer.Typer(no_args_is_help=True, help="A supervisor's hand on its workers; `job` is its hand on jobs.")
workers = typer.Typer(no_args_is_help=True, help="Supervised workers: IDLE, RUNNING, PAUSED and their three ends.")
app.add_typer(workers, name="worker")


@workers.command("create")
def create_worker(
    project: Annotated[UUID, typer.Option(help="The project's UUID.")],
    workspace: Annotated[str, typer.Option(help="Where it works; unset: the project.")] = "",
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
def start_worker(
    ref: Ref,
    resource: Resources = None,
    reason: Reason = "",
    by: By = SUPERVISOR,
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> None:
    """Give an idle worker its task.

    \b
    Example:
      interlock supervise worker start w_1a2b --resource gpu-0
    """
    order = Order(by, reason or None, request_id)
    answer(lambda c: Supervisor(c).start(ref, order, resources=resource), as_json)


@workers.command("resume")
def resume_worker(
    ref: Ref,
    resource: Resources = None,
    reason: Reason = "",
    by: By = SUPERVISOR,
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> None:
    """Let a paused worker go on.

    \b
    Example:
      interlock supervise worker resume w_1a2b
    """
    order = Order(by, reason or None, request_id)
    answer(lambda c: Supervisor(c).resume(ref, order, resources=resource), as_json)


@workers.command("fail")
def fail_worker(
    ref: Ref,
    error: Error = "",
    reason: Reason = "",
    by: By = SUPERVISOR,
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> None:
    """Say that a running worker met an error that cannot be retried.

    \b
    Example:
      interlock supervise worker fail w_1a2b --error "out of memory"
    """
    order = Order(by, reason or None, request_id)
    answer(lambda c: Supervisor(c).fail(ref, order, error=error or None), as_json)


@workers.command("recover", help=RECOVER_HELP)
def recover(
    ref: Ref,
    kind: Annotated[WorkerError, typer.Argument(help="What went wrong.")],
    error: Error = "",
    reason: Reason = "",
    by: By = SUPERVISOR,
    request_id: RequestId = "",
    as_json: AsJson = False,
) -> None:
    """Recover from a worker's error."""
    order = Order(by, reason or None, request_id)
    recovered(lambda c: recover_worker(c, ref, kind, order, error=error or None), as_json)


simple(
    workers, "supervise worker pause", "Pause a running worker.", lambda c, ref, order: Supervisor(c).pause(ref, order)
)
simple(
    workers,
    "supervise worker complete",
    "Say that all its tasks are done.",
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
