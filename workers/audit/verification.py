"""Verifies history by itself: a sweep reads some instances each minute until all are read, and starts anew each day.

Each part is compared with what all anchors recorded of its instances. A pass begins with the newest anchors themselves.
"""

import time
from uuid import UUID

import structlog
from sqlalchemy import Connection

from interlock.db.audit import anchors, belongings, verification
from interlock.db.audit.verify import Verdict, verify_next
from interlock.db.connection import one_snapshot, transaction, try_lock
from interlock.workers.audit import anchor_checks, chain_heads
from interlock.workers.audit.signing_keys import KeyFault, trusted_keys
from interlock.workers.runtime import Runtime

VERIFY_SECONDS = 5.0  # of each run of the sweep: a twelfth of a core while a pass is under way
INSTANCES = 500  # read in one snapshot: what takes longer than the task may would be begun again for ever

log = structlog.get_logger()


def verify_some(runtime: Runtime) -> int:
    """Continue the pass over all instances, or begin one that is due; returns the number of problems found.

    Raises:
        DBAPIError: the database is unreachable; the next run continues.
    """
    if runtime.settings.verify_seconds == 0:
        return 0
    found, until = 0, time.monotonic() + VERIFY_SECONDS
    while time.monotonic() < until:
        with transaction(runtime.database) as connection:
            if not try_lock(connection, verification.VERIFY_LOCK):
                return found
            present = verification.present(connection, every_seconds=runtime.settings.verify_seconds)
            if present is None:
                return found
            verdict, last_id = _read(runtime, present["last_id"])
            verification.note(connection, present, verdict, last_id)
        found += verdict.found
        for each in verdict.problems:
            log.error("history_changed", instance=each.instance, seq=each.seq, message=each.message)
    return found


def _read(runtime: Runtime, after: UUID | None) -> tuple[Verdict, UUID | None]:
    with transaction(runtime.database) as connection:
        one_snapshot(connection)
        verdict, last = verify_next(connection, after, limit=INSTANCES)
        if after is None:
            _newest_anchors(runtime, connection, verdict)
        for lost in anchors.missing_between(connection, after or belongings.FIRST, last or belongings.LAST):
            chain_heads.note_lost(verdict, lost.workflow_id, lost.seq, lost.gone, f"anchor {lost.number}")
    return verdict, last


def _newest_anchors(runtime: Runtime, connection: Connection, verdict: Verdict) -> None:
    try:
        keys = trusted_keys(runtime.settings.signing_directory)
    except KeyFault as fault:
        log.warning("anchors_not_verified", error=str(fault))
        return
    if keys:  # this machine may have none
        anchor_checks.check_newest(connection, verdict, keys)
