"""What operators do to workers: shut them down, suspend and resume them (WORKER-10, WORKER-13)."""

from typing import Literal

from sqlalchemy import RowMapping

from interlock.db.connection import transaction
from interlock.workers.client.client import Client
from interlock.workers.client.partition_drainer import settle
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.pool import registration
from interlock.workers.pool.registration import Request
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from interlock.workflows.input.arguments import door


@door
def shut_down(runtime: Runtime, name: str, *, by: str, reason: str | None = None, now: bool = False) -> int:
    """Shut a worker down permanently; returns how many tasks it finishes first.

    Args:
        runtime: the database.
        name: the worker's name or UUID.
        by: the worker itself, by its name, or an operator.
        reason: why; needed unless the worker leaves by itself. It is in the events of worker and tasks.
        now: its tasks are given back, for others to retry; it finishes none.

    Raises:
        UnknownInstance: no worker has that name.
        NotAnOperator: `by` is neither the worker nor an operator.
        BadInput: an operator gave no reason.
    """
    worker = registration.find(runtime, name)
    itself = by == registration.name_of(worker)
    request = None if itself else _request(runtime, name, by, reason)
    if not now:
        return registration.drain(runtime, worker["worker_id"], request)
    registration.leave(runtime, worker["worker_id"], "left", request)
    return 0


@door
def move(runtime: Runtime, name: str, trigger: Literal["suspend", "resume"], *, by: str, reason: str) -> RowMapping:
    """Suspend or resume a worker; returns the settled request: its `status` and `result`.

    Raises:
        UnknownInstance: no worker has that name.
        NotAnOperator: `by` is not an operator.
        BadInput: the reason is not valid.
    """
    request = _request(runtime, name, by, reason)
    worker_id = registration.find(runtime, name)["worker_id"]
    receipt = Client(runtime).fire(worker_id, trigger, by=request.by, data={"reason": request.reason})
    return settle(runtime, receipt.request_id, worker_id)


def _request(runtime: Runtime, name: str, by: str, reason: str | None) -> Request:
    if reason is None:
        raise BadInput(f"say why (--reason): only {name} itself (--by {name}) may leave without a reason")
    order = OverrideOrder(by, reason)
    with transaction(runtime.database) as connection:
        require_operator(connection, order.by)
    return Request(order.by, order.reason)
