"""What operators do to workers: shut them down, suspend and resume them (WORKER-10, WORKER-13)."""

from typing import Literal
from uuid import UUID

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
    runtime: Runtime,
    name: str,
    *,
    by: str,
    reason: str | None = None,
    now: bool = False,
    if_silent: bool = False,
    if_version: int | None = None,
    secret: FreeText = "",
) -> int:
    """Shut a worker down permanently; returns how many tasks it finishes first.

    Args:
        runtime: the database.
        name: the worker's name or UUID; if there is none, the project's worker of the execution engine.
        by: the worker itself, by its name, or an operator.
        reason: why; needed unless the worker leaves by itself. It is in the events of worker and tasks.
        now: its tasks are given back, for others to retry; it finishes none.
        if_silent: the same, but only if its heartbeats are missing.
        if_version: for an operator: only if the worker is still at this version; None: at any.
        secret: of its registration, if it leaves by itself.

    Raises:
        UnknownInstance: no worker has that name.
        NotAnOperator: `by` is neither the worker nor an operator.
        NotYours: `by` is the worker's name, and the secret is not its.
        NotShutDown: its state does not allow it.
        VersionConflict: it has moved on; nothing was changed.
        StillAnswers: it was to be shut down only if it is silent, and it is not.
        BadInput: an operator gave no reason, or the secret cannot be one.
    """
    proof = secret and worker_secrets.checked(secret)
    with transaction(runtime.database) as connection:
        worker = instances.by_id(connection, registration.find(runtime, name)["worker_id"])
    if by in (worker["entity_id"], _own_name(worker)):
        return _end(runtime, worker, Registration(worker["id"], proof), now=now, if_silent=if_silent)
    order = OverrideOrder(by, _given(worker, reason), if_version=if_version)
    return dismiss(runtime, worker["id"], order, now=now, if_silent=if_silent)


@door
def dismiss(
    runtime: Runtime, worker_id: UUID, order: OverrideOrder, *, now: bool = False, if_silent: bool = False
) -> int:
    """Shut a worker down permanently, as an operator; returns how many tasks it finishes first.

    Args:
        runtime: the database.
        worker_id: the worker.
        order: the operator, why, and at which version of the worker.
        now, if_silent: see `shut_down`.

    Raises:
        UnknownInstance, NotAnOperator, NotShutDown, VersionConflict, StillAnswers: see `shut_down`.
    """
    with transaction(runtime.database) as connection:
        worker = instances.by_id(connection, worker_id)
    return _end(runtime, worker, _dismissal(runtime, worker, LEAVE, order), now=now, if_silent=if_silent)


def _end(runtime: Runtime, worker: InstanceRow, wish: Registration | Dismissal, *, now: bool, if_silent: bool) -> int:
    left = 0
    if now or if_silent:
        registration.leave(runtime, wish, if_silent=if_silent)
    else:
        left = registration.drain(runtime, wish)
    if not left:
        _require_ended(runtime, worker)
    return left


@door
def move(runtime: Runtime, name: str, trigger: Literal["suspend", "resume"], order: OverrideOrder) -> RowMapping:
    """Suspend or resume a worker; returns the settled request: its `status` and `result`.

    Args:
        runtime: the database.
        name: see `shut_down`.
        trigger: what to do.
        order: the operator, why, and at which version of the worker.

    Raises:
        UnknownInstance: no worker has that name.
        NotAnOperator: `order.by` is not an operator.
    """
    with transaction(runtime.database) as connection:
        worker = instances.by_id(connection, registration.find(runtime, name)["worker_id"])
    wish = _dismissal(runtime, worker, trigger, order)
    why = {"reason": wish.reason}
    receipt = Client(runtime).fire(wish.worker_id, trigger, by=wish.by, data=why, if_version=wish.if_version)
    return settle(runtime, receipt.request_id, wish.worker_id)


def _require_ended(runtime: Runtime, worker: InstanceRow) -> None:
    Drain(runtime).partition(requests.partition_of(worker["id"]))
    with transaction(runtime.database) as connection:
        state = instances.by_id(connection, worker["id"])["current_state"]
    if state not in runtime.catalogue.get(worker["workflow_type"], worker["definition_version"]).terminal:
        asked = offered("show", worker["id"])
        raise NotShutDown(f"worker {worker['entity_id']!r} is still {state}. `{asked}` says what came of its shutdown.")


def _own_name(worker: InstanceRow) -> str:
    """The name that a worker registered under, without the suffix of a name that was used before."""
    return worker["entity_id"].partition("#")[0]


def _given(worker: InstanceRow, reason: str | None) -> str:
    if reason is None:
        name = _own_name(worker)
        raise BadInput(
            f"say why (--reason): only {name} itself (--by {name}, and its secret) may leave without a reason"
        )
    return reason


def _dismissal(runtime: Runtime, worker: InstanceRow, trigger: str, order: OverrideOrder) -> Dismissal:
    with transaction(runtime.database) as connection:
        require_operator(connection, order.by, trigger, worker["id"])
    return Dismissal(worker["id"], order.by, order.reason, order.if_version, order.proof)
