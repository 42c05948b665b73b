"""What operators do to workers: shut them down, suspend and resume them (WORKER-10, WORKER-13)."""

from typing import Literal

from sqlalchemy import RowMapping

from interlock.db.connection import transaction
from interlock.db.core import instances, requests
from interlock.db.core.instances import InstanceRow
from interlock.workers.client.client import Client
from interlock.workers.client.partition_drainer import Drain, settle
from interlock.workers.engine import worker_secrets
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.pool import registration
from interlock.workers.pool.registration import LEAVE, Dismissal, Registration
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, Refused
from interlock.workflows.input.arguments import FreeText, door
from interlock.workflows.output.suggestions import offered


class NotShutDown(Refused):
    """A worker could not be shut down. The message says what stands in the way."""


@door
def shut_down(
    runtime: Runtime, name: str, *, by: str, reason: str | None = None, now: bool = False, secret: FreeText = ""
) -> int:
    """Shut a worker down permanently; returns how many tasks it finishes first.

    Args:
        runtime: the database.
        name: the worker's name or UUID; if there is none, the project's worker of the execution engine.
        by: the worker itself, by its name, or an operator.
        reason: why; needed unless the worker leaves by itself. It is in the events of worker and tasks.
        now: its tasks are given back, for others to retry; it finishes none.
        secret: of its registration, if it leaves by itself.

    Raises:
        UnknownInstance: no worker has that name.
        NotAnOperator: `by` is neither the worker nor an operator.
        NotYours: `by` is the worker's name, and the secret is not its.
        NotShutDown: its state does not allow it, or a BUSY `uet_worker` is to end at once.
        BadInput: an operator gave no reason, or the secret cannot be one.
    """
    proof = secret and worker_secrets.checked(secret)
    with transaction(runtime.database) as connection:
        worker = instances.by_id(connection, registration.find_any(runtime, name))
    wish: Registration | Dismissal
    if by in (worker["entity_id"], _own_name(worker)):
        wish = Registration(worker["id"], proof)
    else:
        wish = _dismissal(runtime, worker, LEAVE, by, reason)
    if worker["workflow_type"] == "uet_worker":
        return _end_uet(runtime, worker, wish, by, now=now)
    left = 0
    if now:
        registration.leave(runtime, wish)
    else:
        left = registration.drain(runtime, wish)
    if not left:
        _require_ended(runtime, worker)
    return left


@door
def move(runtime: Runtime, name: str, trigger: Literal["suspend", "resume"], *, by: str, reason: str) -> RowMapping:
    """Suspend or resume a worker; returns the settled request: its `status` and `result`.

    Raises:
        UnknownInstance: no worker has that name.
        NotAnOperator: `by` is not an operator.
        BadInput: the reason is not valid.
    """
    with transaction(runtime.database) as connection:
        worker = instances.by_id(connection, registration.find(runtime, name)["worker_id"])
    wish = _dismissal(runtime, worker, trigger, by, reason)
    receipt = Client(runtime).fire(wish.worker_id, trigger, by=wish.by, data={"reason": wish.reason})
    return settle(runtime, receipt.request_id, wish.worker_id)


def _end_uet(runtime: Runtime, worker: InstanceRow, wish: Registration | Dismissal, by: str, *, now: bool) -> int:
    """Ask a worker of the execution engine to end: a BUSY one drains first (UET-5), any other has no task."""
    if now and worker["current_state"] == "BUSY":
        raise NotShutDown(
            f"worker {worker['entity_id']!r} is BUSY: Interlock gave it no task that it could take back (UET-7). "
            "Without --now, it finishes first."
        )
    proof = f"secret:{wish.secret}" if isinstance(wish, Registration) else ""
    data = {"reason": wish.reason} if isinstance(wish, Dismissal) else None
    receipt = Client(runtime).fire(wish.worker_id, LEAVE, by=by, data=data, proof=proof)
    done = settle(runtime, receipt.request_id, wish.worker_id)
    if done["status"] != "applied":
        raise NotShutDown(f"worker {worker['entity_id']!r}: {(done['result'] or {}).get('message', done['status'])}")
    return int(done["result"]["to"] == "DRAINING")


def _require_ended(runtime: Runtime, worker: InstanceRow) -> None:
    Drain(runtime).partition(requests.partition_of(worker["id"]))
    with transaction(runtime.database) as connection:
        state = instances.by_id(connection, worker["id"])["current_state"]
    if state != "shutdown":
        asked = offered("show", worker["id"])
        raise NotShutDown(f"worker {worker['entity_id']!r} is still {state}. `{asked}` says what came of its shutdown.")


def _own_name(worker: InstanceRow) -> str:
    """The name that a worker registered under, without the suffix of a name that was used before."""
    return worker["entity_id"].partition("#")[0]


def _dismissal(runtime: Runtime, worker: InstanceRow, trigger: str, by: str, reason: str | None) -> Dismissal:
    if reason is None:
        name = _own_name(worker)
        raise BadInput(
            f"say why (--reason): only {name} itself (--by {name}, and its secret) may leave without a reason"
        )
    order = OverrideOrder(by, reason)
    with transaction(runtime.database) as connection:
        require_operator(connection, order.by, trigger, worker["id"])
    return Dismissal(worker["id"], order.by, order.reason)
