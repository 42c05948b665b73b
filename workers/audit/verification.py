"""Verifies history by itself: a sweep reads some instances each minute until all are read, and starts anew each day.

Each part is compared with what all anchors recorded of its instances. Another sweep compares what stands beside history
with it, once in each pass: the anchors themselves, exports and the journal.
"""

import time
from uuid import UUID

import structlog

from interlock.db.audit import anchors, belongings, verification
from interlock.db.audit.verify import Verdict, verify_next
from interlock.db.connection import keep_idle, one_snapshot, take_lock, transaction, try_lock
from interlock.workers.audit import chain_heads, evidence, journal_checks
from interlock.workers.audit.evidence import EVER
from interlock.workers.audit.signing_keys import trusted_keys
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
        found += _told(verdict)
    return found


def compare_evidence(runtime: Runtime) -> int:
    """Compare what stands beside history with it, if the pass has not done that; returns the number of problems found.

    Of the journal, what was written or changed is read since the last pass that found nothing wrong.

    Raises:
        DBAPIError: the database is unreachable; the next run tries again.
        OSError, KeyFault: a file cannot be read.
    """
    if runtime.settings.verify_seconds == 0:
        return 0
    with transaction(runtime.database) as connection:
        if not try_lock(connection, verification.COMPARE_LOCK) or verification.uncompared(connection) is None:
            return 0
        keep_idle(connection)  # while others read; it has no transaction id, so it delays nobody
        verdict, since = Verdict(), verification.last_sound(connection) or EVER
        if keys := trusted_keys(runtime.settings.signing_directory):
            evidence.compare(runtime, verdict, keys, since=since)
        else:
            log.warning(
                "anchors_not_compared", message="this machine has no key", place=runtime.settings.signing_directory
            )
            journal_checks.check(runtime.database, verdict, runtime.settings.state_directory, since=since)
        take_lock(connection, verification.VERIFY_LOCK)
        verification.note_compared(connection, verdict)
    return _told(verdict)


def _told(verdict: Verdict) -> int:
    for each in verdict.problems:
        log.error("history_changed", instance=each.instance, seq=each.seq, message=each.message)
    return verdict.found


def _read(runtime: Runtime, after: UUID | None) -> tuple[Verdict, UUID | None]:
    with transaction(runtime.database) as connection:
        one_snapshot(connection)
        verdict, last = verify_next(connection, after, limit=INSTANCES)
        for lost in anchors.missing_between(connection, after or belongings.FIRST, last or belongings.LAST):
            chain_heads.note_lost(verdict, lost.workflow_id, lost.seq, lost.gone, f"anchor {lost.number}")
    return verdict, last
