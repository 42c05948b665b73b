"""Runs effects: claims each under a lease, acts outside any transaction, reports under the lease's fencing token.

An effect may run more than once, because its worker can die between acting and reporting. So each effect passes its id
and its token to the other side. A report by a worker that has lost the lease is always refused.

One of Interlock's own returns either a mapping, and its definition names the trigger to fire, or an `EffectOutcome`,
which names the trigger. What a declared one returns is the data of the trigger that its definition names (EFFECT-4).
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import RowMapping

from interlock.db.connection import retryable, transaction
from interlock.db.core import counters, effects, limits, requests
from interlock.db.core.effects import ClaimedEffect
from interlock.db.fast_path import Row
from interlock.db.retry import retried
from interlock.workers.effects import declared, gates, merge, notification, patches
from interlock.workers.effects.declared import EffectCancelled, EffectNotBegun
from interlock.workers.effects.holder import holder
from interlock.workers.effects.outcome import EffectOutcome
from interlock.workers.effects.signed_call import CallNotAccepted
from interlock.workers.git.lock import RepositoryBusy
from interlock.workers.operations import regressions, rollbacks
from interlock.workers.runtime import Runtime
from interlock.workers.telemetry.logs import log_context
from interlock.workers.telemetry.tracing import current, tracing
from interlock.workflows.effects import DeclaredEffect
from interlock.workflows.errors import InterlockError, StaleLease, UnknownWorkflow
from interlock.workflows.input import limits as sizes
from interlock.workflows.input.limits import Unreadable
from interlock.workflows.output.escaping import shown
from interlock.workflows.output.urls import without_users

log = structlog.get_logger()

BUSY_SECONDS = 3600.0  # since the effect was requested: for so long, waiting is no attempt
BUSY_PAUSE_SECONDS = 5.0
NOT_DUE = "nothing to do: it is not due, or another worker has it"

Perform = Callable[[Runtime, ClaimedEffect], Mapping[str, Any] | EffectOutcome]

EFFECTS: Mapping[str, Perform] = {
    "notice": notification.send,
    "run_gate": gates.run_gate,
    "validate_patch": patches.validate_patch,
    "apply_patch": patches.apply_patch,
    "commit_patch": patches.commit_patch,
    "restore_worktree": patches.restore_worktree,
    "land_workstream": merge.land_workstream,
    "archive_workstream": merge.archive_workstream,
    "find_culprit": regressions.find_culprit,
    "roll_back_culprit": regressions.roll_back_culprit,
    "roll_back_patch": rollbacks.roll_back_patch,
}


class UnknownEffect(InterlockError):
    """This node has no effect of that name. Name the module that declares it in the node's INTERLOCK_DEFINITIONS."""


def run(runtime: Runtime, effect_id: UUID) -> str:
    """Run one effect if it is due, unclaimed, its exclusive key is free and its limits have room.

    Its outcome is recorded, and its trigger fired.

    Returns:
        What became of it, for people.

    Raises:
        DBAPIError: the database became unreachable; the lease expires and the effect is run again.
    """
    known = runtime.catalogue.effects  # before the claim: a node whose definitions cannot be read takes nothing
    with runtime.statements.connect() as connection:
        seconds = runtime.settings.effect_lease_seconds
        claimed = effects.claim(connection, effect_id, holder=holder(), lease_seconds=seconds)
        waits = limits.refusing(connection, effect_id) if claimed is None else None
    if claimed is None:
        return shown(f"waits for a limit: {waits}") if waits else NOT_DUE
    spans = tracing()
    with log_context(claimed), spans.performing(claimed) if spans else nullcontext():
        return _perform(runtime, claimed, known.get(claimed["name"]))


def _perform(runtime: Runtime, claimed: ClaimedEffect, own: DeclaredEffect | None) -> str:
    if isinstance(payload := claimed["payload"], Unreadable):  # a retry would fail too
        unread = f"payload cannot be read: {payload.why}"
        return _report(runtime, claimed, "dead", claimed["failed_trigger"], error=unread)
    try:
        outcome = _within_bounds(declared.call(runtime, claimed, own) if own else _shipped(runtime, claimed))
    except StaleLease as stale:
        return _stale(claimed, stale)
    except EffectCancelled as cancelled:
        log.info("effect_cancelled", name=claimed["name"], error=str(cancelled))
        uncounted = isinstance(cancelled, EffectNotBegun)
        return _report(runtime, claimed, "cancelled", None, error=str(cancelled), uncounted=uncounted)
    except Exception as error:
        log.warning("effect_failed", name=claimed["name"], error=without_users(str(error)))
        if at_work := tracing():
            at_work.failed(error)
        return _report_failure(runtime, claimed, error, own)
    else:
        log.info("effect_done", name=claimed["name"], token=claimed["token"])
        return _report_done(runtime, claimed, outcome)


def _shipped(runtime: Runtime, claimed: ClaimedEffect) -> Mapping[str, Any] | EffectOutcome:
    try:
        perform = EFFECTS[claimed["name"]]
    except KeyError:
        raise UnknownEffect(f"no module of this node's INTERLOCK_DEFINITIONS declares {claimed['name']!r}") from None
    return perform(runtime, claimed)


def _within_bounds(outcome: Mapping[str, Any] | EffectOutcome) -> Mapping[str, Any] | EffectOutcome:
    """The outcome, if it is small enough to store. Raises `BadInput` otherwise, and the effect fails."""
    metadata = outcome.metadata if isinstance(outcome, EffectOutcome) else outcome
    sizes.checked("the outcome of the effect", metadata, sizes.LIMIT_BYTES)
    return outcome


def _report_done(runtime: Runtime, claimed: ClaimedEffect, outcome: Mapping[str, Any] | EffectOutcome) -> str:
    if isinstance(outcome, EffectOutcome):
        result = {"trigger": outcome.trigger} if outcome.kept is None else outcome.kept
        return _report(runtime, claimed, "done", outcome.trigger, result=result, metadata=outcome.metadata)
    return _report(runtime, claimed, "done", claimed["done_trigger"], result=outcome)


def _report_failure(runtime: Runtime, claimed: ClaimedEffect, error: Exception, own: DeclaredEffect | None) -> str:
    metadata = without_users(f"{type(error).__name__}: {error}")[:2000]
    waited = isinstance(error, RepositoryBusy | UnknownEffect | UnknownWorkflow)
    # Pooled connections fail when they are first used after a restart of PostgreSQL. A user's effect may mean another.
    away = own is None and retryable(error)
    busy = (waited or away) and claimed["age_seconds"] < BUSY_SECONDS
    if busy or isinstance(error, merge.PhaseFrozen):
        # It only waited for others in the repository, a thaw, a node that has its code or PostgreSQL: no attempt.
        waits: dict[str, Any] = {"delay_seconds": BUSY_PAUSE_SECONDS, "uncounted": True}
        return _report(runtime, claimed, "pending", None, error=metadata, **waits)
    policy = runtime.retry_policy
    if own:
        policy = replace(policy, max_attempts=own.max_attempts(policy.max_attempts))
    delay, answer = (
        policy.delay_seconds(claimed["attempts"]),
        error.answer if isinstance(error, CallNotAccepted) else None,
    )
    if delay is None:
        return _report(runtime, claimed, "dead", claimed["failed_trigger"], result=answer, error=metadata)
    return _report(runtime, claimed, "pending", None, result=answer, error=metadata, delay_seconds=delay)


def _report(
    runtime: Runtime,
    claimed: ClaimedEffect,
    status: str,
    trigger: str | None,
    *,
    result: Mapping[str, Any] | None = None,
    error: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    delay_seconds: float = 0.0,
    uncounted: bool = False,
) -> str:
    """Record how it ended, and fire the trigger that tells it; returns that for people."""

    def settle() -> tuple[Iterable[Row], Iterable[RowMapping]]:
        # Where nothing follows, there is only one statement, which needs no transaction around it.
        alone = status == "done" and trigger is None and claimed["exclusive"] is None and not claimed["limited"]
        with runtime.statements.connect() if alone else transaction(runtime.database) as connection:
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
            return accepted, effects.next_after(connection, claimed)

    try:
        # A brief outage of the database must not cause hours of work to be repeated.
        accepted, waiting = retried(lambda _: settle(), patience_seconds=runtime.settings.effect_lease_seconds / 2)
    except StaleLease as stale:
        return _stale(claimed, stale)
    runtime.wakeups.effects(waiting)
    runtime.wakeups.partitions(
        dict(row)
        | {"workflow_type": claimed["workflow_type"], "entity_id": claimed["entity_id"], "triggered_by": "effect"}
        for row in accepted
    )
    return shown(f"{'to be tried again' if status == 'pending' else status}{f': {error}' if error else ''}")


def _stale(claimed: ClaimedEffect, stale: StaleLease) -> str:
    log.warning("stale_lease", token=claimed["token"], error=str(stale))
    return f"lease lost: {stale}"
