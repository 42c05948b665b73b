"""Recovery from the errors of workers and jobs, row by row as in SUPERVISED-5 and JOB-7."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping

from interlock.db.connection import transaction
from interlock.db.core import instances, requests
from interlock.db.orchestration import jobs as supervision
from interlock.workers.client.client import Client
from interlock.workers.engine import worker_secrets
from interlock.workers.engine.creation import deliver
from interlock.workers.supervision.actions import ActionOrder, entity_id, right_to
from interlock.workers.supervision.jobs import TYPE as JOB
from interlock.workers.supervision.jobs import Jobs
from interlock.workers.supervision.supervised_workers import TYPE as WORKER
from interlock.workers.supervision.supervised_workers import Supervisor
from interlock.workflows.errors import BadInput, IllegalTransition
from interlock.workflows.input.arguments import FreeText, door
from interlock.workflows.machines.supervision.supervised_worker import RETRIES


class WorkerError(StrEnum):
    """The kinds of errors of a worker (SUPERVISED-5)."""

    TRANSIENT_NETWORK = "transient_network"
    RESOURCE_EXHAUSTION = "resource_exhaustion"
    UNRECOVERABLE = "unrecoverable"
    SUPERVISOR_TIMEOUT = "supervisor_timeout"


class JobError(StrEnum):
    """The kinds of errors of a job (JOB-7)."""

    WORKER_CRASH = "worker_crash"
    VALIDATION = "validation"
    TIMEOUT = "timeout"
    RESOURCE_UNAVAILABLE = "resource_unavailable"


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was done.

    Attributes:
        action: `retry`, `pause`, `fail`, `terminate`, `respawn`, `cancel` or `wait`.
        subject: the worker or job, as it is now.
        attempt: which retry this is, from 1; 0 if nothing is retried.
        replacement: the worker that replaced a crashed one.
        secret: of a replacement that was just created, which cannot be had again; by that it speaks for itself.
    """

    action: str
    subject: dict[str, Any]
    attempt: int = 0
    replacement: dict[str, Any] | None = None
    secret: str | None = field(default=None, repr=False)


@door
def recover_worker(
    client: Client,
    ref: str | UUID,
    error_kind: WorkerError,
    order: ActionOrder,
    *,
    error: FreeText | None = None,
) -> Recovery:
    """Recover from a worker's error (SUPERVISED-5).

    | error | what is done | the worker's state afterwards |
    |---|---|---|
    | transient network error | retry, three times since its last move; then it is unrecoverable | RUNNING |
    | resource exhaustion | pause, and release its resources | PAUSED |
    | unrecoverable error | mark failed; the error is kept in history | FAILED |
    | supervisor timeout | terminate | TERMINATED |

    Args:
        client: whose connections.
        ref: the worker.
        error_kind: which row of the table.
        order: who, why, and the request_id under which a repetition acts once. Of a retry, which is no move, both are
            in the worker's `metadata`, under `retries.made`.
        error: what went wrong, kept with the event.

    Raises:
        IllegalTransition: the worker's state does not allow it (409).
        NotYours: `order.by` may not fail this worker.
        BadInput: `order` gives no reason.
    """
    order.explained()
    supervisor = Supervisor(client)
    match error_kind:
        case WorkerError.TRANSIENT_NETWORK:
            return _retry(supervisor, ref, order, error)
        case WorkerError.RESOURCE_EXHAUSTION:
            return Recovery("pause", dict(supervisor.relieve(ref, order, error=error).subject))
        case WorkerError.UNRECOVERABLE:
            return Recovery("fail", dict(supervisor.fail(ref, order, error=error).subject))
        case WorkerError.SUPERVISOR_TIMEOUT:
            return Recovery("terminate", dict(supervisor.terminate(ref, order).subject))


@door
def recover_job(
    client: Client,
    ref: str | UUID,
    error_kind: JobError,
    order: ActionOrder,
    *,
    error: FreeText | None = None,
    worker: str | UUID | None = None,
) -> Recovery:
    """Recover from a job's error (JOB-7).

    | error | what is done | the job's state afterwards |
    |---|---|---|
    | worker crash | the crashed `worker` is marked failed; a new one, with its own secret, takes its place | RUNNING |
    | validation error | the job fails; if it is not running yet, it is canceled | FAILED or CANCELED |
    | timeout | the job is canceled | CANCELED |
    | resource unavailable | nothing: the sweep `jobs` tries the job again | PENDING |

    Args:
        client, ref, error_kind, order, error: as for `recover_worker`.
        worker: which one crashed.

    Raises:
        IllegalTransition: the job's state does not allow it (409).
        NotYours: `order.by` may not fail this job, or replace its worker.
        BadInput: `order` gives no reason, or the job has no such worker.
    """
    order.explained()
    jobs = Jobs(client)
    match error_kind:
        case JobError.WORKER_CRASH:
            return _respawn(jobs, ref, worker, order, error)
        case JobError.VALIDATION if not _has_not_run(jobs, ref, order):
            return Recovery("fail", dict(jobs.fail(ref, order, error=error).subject))
        case JobError.VALIDATION | JobError.TIMEOUT:
            return Recovery("cancel", dict(jobs.cancel(ref, order, error=error).subject))
        case JobError.RESOURCE_UNAVAILABLE:
            return Recovery("wait", _require_state(client, jobs.show(ref), JOB, "PENDING"))


def _retry(supervisor: Supervisor, ref: str | UUID, order: ActionOrder, error: FreeText | None) -> Recovery:
    client, worker = supervisor.client, supervisor.show(ref)
    attempt = _counted_before(worker, order.request_id)
    right_to(client, worker["id"], "error_unrecoverable", order)  # the last retry fails it
    if attempt is None:
        attempt = _count_retry(client, _require_state(client, worker, WORKER, "RUNNING")["id"], order)
    if attempt <= RETRIES:
        return Recovery("retry", supervisor.show(worker["id"]), attempt)
    message = f"network error after {RETRIES} retries: {error or 'no more is known'}"
    return Recovery("fail", dict(supervisor.fail(worker["id"], order, error=message, retryable=True).subject))


def _counted_before(worker: Mapping[str, Any] | RowMapping, request_id: str) -> int | None:
    """The retry number of a repeated request, whatever the worker's state by now; None for a new request."""
    counts: Mapping[str, int] = worker["metadata"].get("retries", {}).get("requests", {})
    return counts.get(request_id)


def _count_retry(client: Client, worker_id: UUID, order: ActionOrder) -> int:
    """Count a retry, and note who made it and why; returns its number since the worker's last move."""
    request_id = order.request_id
    with transaction(client.runtime.database) as connection:
        worker = supervision.worker(connection, worker_id, lock=True)
        if (before := _counted_before(worker, request_id)) is not None:  # another process counted it first
            return before
        counted = worker["metadata"].get("retries", {})
        count = 1 + (counted["count"] if counted.get("since") == worker["version"] else 0)
        counts = counted.get("requests", {}) | ({request_id: count} if request_id else {})
        at = supervision.now(connection).isoformat()
        made = [*counted.get("made", ()), {"at": at, "attempt": count, "by": order.by, "reason": order.reason}]
        facts = {"retries": {"since": worker["version"], "count": count, "requests": counts, "made": made}}
        supervision.note(connection, worker_id, facts)
        return count


def _has_not_run(jobs: Jobs, ref: str | UUID, order: ActionOrder) -> bool:
    """Whether a job has not run yet; for a repeated request, whether it had not when the request was first made."""
    with transaction(jobs.client.runtime.database) as connection:
        made = requests.by_ids(connection, [order.request_id]).get(order.request_id) if order.request_id else None
    return made["trigger"] == "cancel" if made else jobs.show(ref)["status"] in ("SUBMITTED", "PENDING")


def _respawn(
    jobs: Jobs, ref: str | UUID, crashed: str | UUID | None, order: ActionOrder, error: FreeText | None
) -> Recovery:
    """Replace a crashed worker. Each step may be repeated, so a supervisor may die between two steps."""
    client, job = jobs.client, jobs.show(ref)
    lost = next((each for each in job["workers"] if str(crashed) in (str(each["id"]), each["entity_id"])), None)
    if lost and job["status"] != "RUNNING":
        name = _name_in_place_of(job, lost)
        if replacement := next((each for each in job["workers"] if each["entity_id"] == name), None):
            return Recovery("respawn", job, replacement=replacement)  # reported before, and the job has ended since
    _require_state(client, job, JOB, "RUNNING")
    right_to(client, job["id"], "error", order)  # its new worker belongs to it
    if lost is None:
        raise BadInput(f"job {job['entity_id']!r} has no worker {str(crashed)!r}; name the one of its own that crashed")
    supervisor = Supervisor(client)
    if lost["status"] == "RUNNING":
        supervisor.fail(lost["id"], order.derived("crash"), error=error)
    elif lost["status"] in ("IDLE", "PAUSED"):
        supervisor.terminate(lost["id"], order.derived("crash"))
    replacement_id, secret = _replacement(client, job, lost, order)
    again = ActionOrder(order.by, f"in place of {lost['entity_id']}", f"{replacement_id}:start")
    started = supervisor.start(replacement_id, again)
    return Recovery("respawn", jobs.show(job["id"]), replacement=dict(started.subject), secret=secret)


def _name_in_place_of(job: dict[str, Any], lost: dict[str, Any]) -> str:
    return entity_id("w", job["project"], f"in place of {lost['id']}")


def _replacement(
    client: Client, job: dict[str, Any], lost: dict[str, Any], order: ActionOrder
) -> tuple[UUID, str | None]:
    """A new worker that belongs to the job from its creation, so that no other job can take it, and its secret.

    None instead of the secret: it was created before, and its secret was given then.
    """
    name = _name_in_place_of(job, lost)
    context = {
        "workspace_id": lost["workspace_id"],
        "in_place_of": lost["entity_id"],
        "reason": order.reason,
        **worker_secrets.digest_of(secret := worker_secrets.make()),
    }
    birth = client.birth(WORKER, name, project=job["project"], context=context, by=order.by)
    with transaction(client.runtime.database) as connection:
        new = deliver(connection, [birth]).new
        made = instances.find(connection, name, job["project"], WORKER)
        supervision.hold(connection, job["id"], made["id"])
    return UUID(str(made["id"])), secret if new else None


def _require_state(client: Client, found: dict[str, Any], type_: str, wanted: str) -> dict[str, Any]:
    """The row, if its state is the wanted one. Raises `IllegalTransition`."""
    state = found["status"]
    if state == wanted:
        return found
    legal = client.runtime.catalogue.get(type_).legal(state)
    raise IllegalTransition(f"{type_} {found['entity_id']!r} is {state}, not {wanted}", state=state, legal=legal)
