"""Run effects: claim under a lease, act outside any transaction, report under the lease's fencing token.

An effect may run more than once (its worker can die after acting and before reporting), so each carries its id and its
token to the other side. What never happens is a report by a worker whose lease has passed on.

An effect returns a mapping, and its definition says which trigger tells that; or `Told`, and so chooses the trigger.
"""

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from time import monotonic, sleep
from typing import Any, TypeVar
from uuid import UUID

import structlog
from sqlalchemy import RowMapping
from sqlalchemy.exc import DBAPIError
from uuid_utils.compat import uuid7

from db import effects, metrics, requests
from db.connect import retryable, transaction
from workers import notice
from workers.logs import about
from workers.orchestration import gates, landing, patches
from workers.runtime import Runtime
from workers.told import Told
from workers.tracing import current, tracing
from workflows.errors import StaleLease

log = structlog.get_logger()

T = TypeVar("T")
REPORT_PAUSE_SECONDS = 0.5

Perform = Callable[[Runtime, RowMapping], Mapping[str, Any] | Told]

EFFECTS: Mapping[str, Perform] = {
    "notice": notice.send,
    "run_gate": gates.run_gate,
    "validate_patch": patches.validate_patch,
    "apply_patch": patches.apply_patch,
    "commit_patch": patches.commit_patch,
    "restore_worktree": patches.restore_worktree,
    "land_workstream": landing.land_workstream,
    "archive_workstream": landing.archive_workstream,
}


def run(runtime: Runtime, effect_id: UUID) -> None:
    """Run one effect, if it is due, nobody else's and its key is free; its outcome is recorded and told.

    Raises:
        DBAPIError: the database went away; the lease runs out and the effect is run again.
    """
    with transaction(runtime.database) as connection:
        claimed = effects.claim(
            connection, effect_id, holder=_holder(), lease_seconds=runtime.settings.effect_lease_seconds
        )
    if claimed is None:
        return
    at_work = tracing()
    with about(claimed), at_work.performing(claimed) if at_work else nullcontext():
        _perform(runtime, claimed)


def _perform(runtime: Runtime, claimed: RowMapping) -> None:
    try:
        outcome = EFFECTS[claimed["name"]](runtime, claimed)
    except StaleLease as stale:
        _say_stale(claimed, stale)
    except Exception as error:
        log.warning("effect_failed", name=claimed["name"], error=str(error))
        if at_work := tracing():
            at_work.failed(error)
        _report_failure(runtime, claimed, error)
    else:
        log.info("effect_done", name=claimed["name"], token=claimed["token"])
        _report_done(runtime, claimed, outcome)


def _report_done(runtime: Runtime, claimed: RowMapping, outcome: Mapping[str, Any] | Told) -> None:
    if isinstance(outcome, Told):
        kept = {"told": outcome.trigger} | dict(outcome.result or {})
        _report(runtime, claimed, "done", outcome.trigger, result=kept, says=outcome.metadata)
    else:
        _report(runtime, claimed, "done", claimed["done_trigger"], result=outcome)


def _report_failure(runtime: Runtime, claimed: RowMapping, error: Exception) -> None:
    says = f"{type(error).__name__}: {error}"[:2000]
    delay = runtime.retry_policy.delay_seconds(claimed["attempts"])
    if delay is None:
        _report(runtime, claimed, "dead", claimed["failed_trigger"], error=says)
    else:
        _report(runtime, claimed, "pending", None, error=says, delay_seconds=delay)


def _report(
    runtime: Runtime,
    claimed: RowMapping,
    status: str,
    trigger: str | None,
    *,
    result: Mapping[str, Any] | None = None,
    error: str | None = None,
    says: Mapping[str, Any] | None = None,
    delay_seconds: float = 0.0,
) -> None:
    def settle() -> tuple[Iterable[RowMapping], Iterable[RowMapping]]:
        with transaction(runtime.database) as connection:
            effects.finish(connection, claimed, status=status, result=result, error=error, delay_seconds=delay_seconds)
            if status == "pending":
                metrics.note(connection, {(metrics.RETRIES, ("effect", claimed["name"])): 1})
            telling = (
                [effects.telling(claimed, trigger, result=result, error=error, says=says, trace=current())]
                if trigger
                else []
            )
            told = requests.accept(connection, telling).values()
            return told, effects.next_of(connection, claimed["exclusive"])

    try:
        told, waiting = _persistently(settle, runtime.settings.effect_lease_seconds / 2)
    except StaleLease as stale:
        _say_stale(claimed, stale)
        return
    runtime.hints.effects(waiting)
    runtime.hints.lanes(
        dict(row) | {"workflow_type": claimed["name"], "entity_id": "", "triggered_by": "effect"} for row in told
    )


def _persistently(settle: Callable[[], T], seconds: float) -> T:
    """What took hours is not done again because the database was away for a moment when it was to be told."""
    until = monotonic() + seconds
    while True:
        try:
            return settle()
        except DBAPIError as error:
            if not retryable(error) or monotonic() > until:
                raise
            sleep(REPORT_PAUSE_SECONDS)


def _say_stale(claimed: RowMapping, stale: StaleLease) -> None:
    log.warning("stale_lease", token=claimed["token"], error=str(stale))


def _holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid7()}"
