"""Run effects: claim under a lease, act outside any transaction, report under the lease's fencing token.

An effect may run more than once (its worker can die after acting and before reporting), so each carries its id and its
token to the other side. What never happens is a report by a worker whose lease has passed on.
"""

import os
import socket
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import RowMapping
from uuid_utils.compat import uuid7

from db import effects, requests
from db.connect import transaction
from workers import notice
from workers.runtime import Runtime
from workflows.errors import StaleLease

log = structlog.get_logger()

Perform = Callable[[Runtime, RowMapping], Mapping[str, Any]]

EFFECTS: Mapping[str, Perform] = {"notice": notice.send}


def run(runtime: Runtime, effect_id: UUID) -> None:
    """Run one effect, if it is due and nobody else's; the outcome is recorded and told to its instance.

    Raises:
        DBAPIError: the database went away; the lease runs out and the effect is run again.
    """
    with transaction(runtime.database) as connection:
        claimed = effects.claim(
            connection, effect_id, holder=_holder(), lease_seconds=runtime.settings.effect_lease_seconds
        )
    if claimed is None:
        return
    try:
        result = EFFECTS[claimed["name"]](runtime, claimed)
    except Exception as error:
        log.warning("effect_failed", effect=str(effect_id), name=claimed["name"], error=str(error))
        _report_failure(runtime, claimed, error)
    else:
        _report(runtime, claimed, "done", claimed["done_trigger"], result=result)


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
    delay_seconds: float = 0.0,
) -> None:
    try:
        with transaction(runtime.database) as connection:
            effects.finish(connection, claimed, status=status, result=result, error=error, delay_seconds=delay_seconds)
            told = requests.accept(
                connection, [effects.telling(claimed, trigger, result=result, error=error)] if trigger else []
            )
    except StaleLease as stale:
        log.warning("stale_lease", effect=str(claimed["id"]), token=claimed["token"], error=str(stale))
        return
    runtime.hints.lanes(
        dict(row) | {"workflow_type": claimed["name"], "entity_id": "", "triggered_by": "effect"}
        for row in told.values()
    )


def _holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid7()}"
