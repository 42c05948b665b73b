"""Runs effects: claims each under a lease, acts outside any transaction, reports under the lease's fencing token.

An effect may run more than once, because its worker can die between acting and reporting. So each effect passes its id
and its token to the other side. A report by a worker that has lost the lease is always refused.

An effect returns either a mapping, and its definition names the trigger to fire, or an `EffectOutcome`, which names the
trigger.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import RowMapping

from interlock.db.connection import transaction
from interlock.db.core import counters, effects, requests
from interlock.db.retry import retried
from interlock.workers.effects import gates, merge, notification, patches
from interlock.workers.effects.holder import holder
from interlock.workers.effects.outcome import EffectOutcome
from interlock.workers.git.lock import RepositoryBusy
from interlock.workers.runtime import Runtime
from interlock.workers.telemetry.logs import log_context
from interlock.workers.telemetry.tracing import current, tracing
from interlock.workflows.errors import StaleLease
from interlock.workflows.input import limits
from interlock.workflows.input.limits import Unreadable
from interlock.workflows.output.urls import without_users

log = structlog.get_logger()

BUSY_SECONDS = 3600.0  # since the effect was requested
BUSY_PAUSE_SECONDS = 5.0

Perform = Callable[[Runtime, RowMapping], Mapping[str, Any] | EffectOutcome]

EFFECTS: Mapping[str, Perform] = {
    "notice": notification.send,
    "run_gate": gates.run_gate,
    "validate_patch": patches.validate_patch,
    "apply_patch": patches.apply_patch,
    "commit_patch": patches.commit_patch,
    "restore_worktree": patches.restore_worktree,
    "land_workstream": merge.land_workstream,
    "archive_workstream": merge.archive_workstream,
}


def run(runtime: Runtime, effect_id: UUID) -> None:
    """Run one effect if it is due, unclaimed and its exclusive key is free; record its outcome, and fire its trigger.

    Raises:
        DBAPIError: the database became unreachable; the lease expires and the effect is run again.
    """
    with transaction(runtime.database) as connection:
        seconds = runtime.settings.effect_lease_seconds
        claimed = effects.claim(connection, effect_id, holder=holder(), lease_seconds=seconds)
    if claimed is None:
        return
    spans = tracing()
    with log_context(claimed), spans.performing(claimed) if spans else nullcontext():
        _perform(runtime, claimed)


def _perform(runtime: Runtime, claimed: RowMapping) -> None:
    if isinstance(payload := claimed["payload"], Unreadable):  # a retry would fail too
        _report(runtime, claimed, "dead", claimed["failed_trigger"], error=f"payload cannot be read: {payload.why}")
        return
    try:
        outcome = _within_bounds(EFFECTS[claimed["name"]](runtime, claimed))
    except StaleLease as stale:
        _log_stale(claimed, stale)
    except Exception as error:
        log.warning("effect_failed", name=claimed["name"], error=without_users(str(error)))
        if at_work := tracing():
            at_work.failed(error)
        _report_failure(runtime, claimed, error)
    else:
        log.info("effect_done", name=claimed["name"], token=claimed["token"])
        _report_done(runtime, claimed, outcome)


def _within_bounds(outcome: Mapping[str, Any] | EffectOutcome) -> Mapping[str, Any] | EffectOutcome:
    """The outcome, if it is small enough to store. Raises `BadInput` otherwise, and the effect fails."""
    metadata = outcome.metadata if isinstance(outcome, EffectOutcome) else outcome
    limits.checked("the outcome of the effect", metadata, limits.LIMIT_BYTES)
    return outcome


def _report_done(runtime: Runtime, claimed: RowMapping, outcome: Mapping[str, Any] | EffectOutcome) -> None:
    if isinstance(outcome, EffectOutcome):
        result = {"trigger": outcome.trigger}
        _report(runtime, claimed, "done", outcome.trigger, result=result, metadata=outcome.metadata)
    else:
        _report(runtime, claimed, "done", claimed["done_trigger"], result=outcome)


def _report_failure(runtime: Runtime, claimed: RowMapping, error: Exception) -> None:
    metadata = without_users(f"{type(error).__name__}: {error}")[:2000]
    if isinstance(error, RepositoryBusy) and claimed["age_seconds"] < BUSY_SECONDS:
        # It only waited for others in the repository, so this does not count as an attempt.
        _report(runtime, claimed, "pending", None, error=metadata, delay_seconds=BUSY_PAUSE_SECONDS, uncounted=True)
        return
    delay = runtime.retry_policy.delay_seconds(claimed["attempts"])
    if delay is None:
        _report(runtime, claimed, "dead", claimed["failed_trigger"], error=metadata)
    else:
        _report(runtime, claimed, "pending", None, error=metadata, delay_seconds=delay)


def _report(
    runtime: Runtime,
    claimed: RowMapping,
    status: str,
    trigger: str | None,
    *,
    result: Mapping[str, Any] | None = None,
    error: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    delay_seconds: float = 0.0,
    uncounted: bool = False,
) -> None:
    def settle() -> tuple[Iterable[RowMapping], Iterable[RowMapping]]:
        with transaction(runtime.database) as connection:
            version = effects.finish(
                connection,
                claimed,
                status=status,
                result=result,
                error=error,
                delay_seconds=delay_seconds,
                uncounted=uncounted,
            )
            if status == "pending":
                counters.note(connection, {(counters.RETRIES, ("effect", claimed["name"])): 1})
            reports = []
            if trigger:
                facts: dict[str, Any] = {"result": result, "error": error, "metadata": metadata, "trace": current()}
                reports.append(effects.outcome_request(claimed, trigger, version=version, **facts))
            accepted = requests.accept(connection, reports).values()
            return accepted, effects.next_of(connection, claimed["exclusive"])

    try:
        # A brief outage of the database must not cause hours of work to be repeated.
        accepted, waiting = retried(lambda _: settle(), patience_seconds=runtime.settings.effect_lease_seconds / 2)
    except StaleLease as stale:
        _log_stale(claimed, stale)
        return
    runtime.wakeups.effects(waiting)
    runtime.wakeups.partitions(
        dict(row) | {"workflow_type": claimed["name"], "entity_id": "", "triggered_by": "effect"} for row in accepted
    )


def _log_stale(claimed: RowMapping, stale: StaleLease) -> None:
    log.warning("stale_lease", token=claimed["token"], error=str(stale))
