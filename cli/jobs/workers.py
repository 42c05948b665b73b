"""`interlock supervise worker`: create, start, pause, resume, end and recover supervised workers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import typer

from interlock.cli.jobs.answers import By, Error, Ref, RequestId, answer, lists, ordering, recovered, shows, simple
from interlock.cli.lib.output import AsJson, print_json, say
from interlock.cli.lib.worker_secrets import NewSecretFile, SecretFile, kept, required
from interlock.workers.client.client import Client
from interlock.workers.supervision.actions import ActionOrder, Answer
from interlock.workers.supervision.recovery import Recovery, WorkerError, recover_worker
from interlock.workers.supervision.supervised_workers import Supervisor

Kind = Annotated[WorkerError, typer.Argument(help="What went wrong.")]
Resources = Annotated[
    list[str] | None, typer.Option("--resource", help="A resource it holds while it runs; repeatable.")
]
Tasks = Annotated[list[str] | None, typer.Option("--task", help="The name of one of its tasks; repeatable.")]


app = typer.Typer(
    no_args_is_help=True, help="Commands for supervisors: on supervised workers here, on jobs in `interlock job`."
)
workers = typer.Typer(
    no_args_is_help=True,
    help="Supervised workers: IDLE, RUNNING, PAUSED, and three terminal states. Only who created one or its job, the "
    "worker itself or an operator may complete or fail it.",
)
app.add_typer(workers, name="worker")


@workers.command("create")
def create_worker(
    by: By,
    workspace: Annotated[str, typer.Option(help="Its workspace; default: the project.")] = "",
    capacity: Annotated[int | None, typer.Option(help="How many tasks it takes at once; default: 1.")] = None,
    request_id: RequestId = "",
    secret_file: NewSecretFile = None,
    as_json: AsJson = False,
) -> None:
    """Create an idle worker. Its secret, by which it can complete or fail itself, is printed once.

    While it runs it must send heartbeats (`supervise worker heartbeat`).

    \b
    Examples:
      interlock supervise worker create --project billing
      interlock supervise worker create --secret-file w.secret
    """
    order = ActionOrder(by, None, request_id)
    with kept(secret_file) as keep:

        def create(client: Client) -> Answer:
            made = Supervisor(client).create(workspace_id=workspace or None, capacity=capacity, order=order)
            if secret_file is None or made.secret is None:
                return made
            keep(made.secret)
            return replace(made, secret=None)

        answer(create, order, as_json)


@workers.command("start")
@ordering(answer)
def start_worker(
    order: ActionOrder, ref: Ref, resource: Resources = None, task: Tasks = None
) -> Callable[[Client], Answer]:
    """Start an idle worker. Named tasks, at most its capacity, must all be done before it can complete.

    \b
    Examples:
      interlock supervise worker start w_1a2b --resource gpu-0
      interlock supervise worker start w_1a2b --task lint
    """
    return lambda c: Supervisor(c).start(ref, order, resources=resource, tasks=task)


@workers.command("complete")
@ordering(answer)
def complete_worker(order: ActionOrder, ref: Ref, task: Tasks = None) -> Callable[[Client], Answer]:
    """Report that a worker has done all its tasks, by name if it was started with named ones.

    \b
    Examples:
      interlock supervise worker complete w_1a2b
      interlock supervise worker complete w_1a2b --task lint
    """
    return lambda c: Supervisor(c).complete(ref, order, tasks=task)


@workers.command("heartbeat")
def heartbeat(ref: Ref, secret_file: SecretFile = None, as_json: AsJson = False) -> None:
    """Send a heartbeat for a worker and print its state. A RUNNING one that is silent for two of them fails.

    \b
    Exit code: 2 if it has ended.

    \b
    Example:
      interlock supervise worker heartbeat w_1a2b --secret-file w.secret
    """
    secret = required(secret_file)
    with Client() as client:
        found = Supervisor(client).heartbeat(ref, secret=secret)
    if not print_json({"name": found["entity_id"], "status": found["status"]}, as_json):
        say(f"{found['entity_id']} is {found['status']}")


@workers.command("resume")
@ordering(answer, intervening=True)
def resume_worker(order: ActionOrder, ref: Ref, resource: Resources = None) -> Callable[[Client], Answer]:
    """Resume a paused worker.

    \b
    Example:
      interlock supervise worker resume w_1a2b --by ann --reason "there is memory again"
    """
    return lambda c: Supervisor(c).resume(ref, order, resources=resource)


@workers.command("fail")
@ordering(answer)
def fail_worker(
    order: ActionOrder,
    ref: Ref,
    error: Error = "",
    retryable: Annotated[
        bool, typer.Option("--retryable", help="It could be retried: refused before three retries (`recover`).")
    ] = False,
) -> Callable[[Client], Answer]:
    """Report that a running worker failed with an error that cannot be retried.

    \b
    Example:
      interlock supervise worker fail w_1a2b --error "out of memory"
    """
    return lambda c: Supervisor(c).fail(ref, order, error=error or None, retryable=retryable)


@workers.command("recover")
@ordering(recovered, intervening=True)
def recover(order: ActionOrder, ref: Ref, kind: Kind, error: Error = "") -> Callable[[Client], Recovery]:
    """Handle a worker's error by the recovery table of docs/spec/supervision.md.

    \b
    transient_network    retry, up to three times; then the worker fails
    resource_exhaustion  the worker is paused and releases its resources
    unrecoverable        the worker fails
    supervisor_timeout   the worker is terminated

    \b
    Example:
      interlock supervise worker recover w_1a2b transient_network --by ann --reason "its proxy restarts" --request-id a
    """
    return lambda c: recover_worker(c, ref, kind, order, error=error or None)


simple(
    workers, "supervise worker pause", "Pause a running worker.", Supervisor, Supervisor.pause, why="memory is short"
)
simple(
    workers, "supervise worker terminate", "Stop a worker by force.", Supervisor, Supervisor.terminate, why="it hangs"
)
shows(workers, "supervise worker show w_1a2b", "Show a supervised worker.", Supervisor)
lists(workers, "supervise worker list", "List the newest supervised workers.", "supervised_worker", Supervisor)
