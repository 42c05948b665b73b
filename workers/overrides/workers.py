"""What operators do to workers: shut them down, suspend and resume them (WORKER-10, WORKER-13)."""

from typing import Literal

from sqlalchemy import RowMapping

from interlock.db.connection import transaction
from interlock.workers.client.client import Client
from interlock.workers.client.partition_drainer import settle
from interlock.workers.engine import worker_secrets
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.pool import registration
from interlock.workers.pool.registration import Dismissal, Registration
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from interlock.workflows.input.arguments import FreeText, door


@door
def shut_down(
    runtime: Runtime, name: str, *, by: str, reason: str | None = None, now: bool = False, secret: FreeText = ""
) -> int:
    """Shut a worker down permanently; returns how many tasks it finishes first.

    Args:
        runtime: the database.
        name: the worker's name or UUID.
        by: the worker itself, by its name, or an operator.
        reason: why; needed unless the worker leaves by itself. It is in the events of worker and tasks.
        now: its tasks are given back, for others to retry; it finishes none.
        secret: of its registration, if it leaves by itself.

    Raises:
        UnknownInstance: no worker has that name.
        NotAnOperator: `by` is neither the worker nor an operator.
        NotYours: `by` is the worker's name, and the secret is not its.
        BadInput: an operator gave no reason, or the secret cannot be one.
    """
    proof = secret and worker_secrets.checked(secret)
    worker = registration.find(runtime, name)
    wish: Registration | Dismissal
    if by == registration.name_of(worker):
        wish = Registration(worker["worker_id"], proof)
    else:
        wish = _dismissal(runtime, worker, "shutdown_requested", by, reason)
    if not now:
        return registration.drain(runtime, wish)
    registration.leave(runtime, wish)
    return 0


@door
def move(runtime: Runtime, name: str, trigger: Literal["suspend", "resume"], *, by: str, reason: str) -> RowMapping:
    """Suspend or resume a worker; returns the settled request: its `status` and `result`.

    Raises:
        UnknownInstance: no worker has that name.
        NotAnOperator: `by` is not an operator.
        BadInput: the reason is not valid.
    """
    worker = registration.find(runtime, name)
    wish = _dismissal(runtime, worker, trigger, by, reason)
    receipt = Client(runtime).fire(wish.worker_id, trigger, by=wish.by, data={"reason": wish.reason})
    return settle(runtime, receipt.request_id, wish.worker_id)


def _dismissal(runtime: Runtime, worker: RowMapping, trigger: str, by: str, reason: str | None) -> Dismissal:
    if reason is None:
        name = registration.name_of(worker)
        raise BadInput(
            f"say why (--reason): only {name} itself (--by {name}, and its secret) may leave without a reason"
        )
    order = OverrideOrder(by, reason)
    with transaction(runtime.database) as connection:
        require_operator(connection, order.by, trigger, worker["worker_id"])
    return Dismissal(worker["worker_id"], order.by, order.reason)
