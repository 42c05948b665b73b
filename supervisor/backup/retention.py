"""Which backups are kept: the newest ones, and those that are not old yet."""

import os
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from interlock.supervisor.backup.directory import PARTIAL, exclusively
from interlock.workers.audit.backup_manifest import TrustedKeys
from interlock.workers.audit.kept_backups import KeptBackup, newest_first
from interlock.workers.system.safe_remove import remove
from interlock.workers.system.uninterrupted import uninterrupted


def prune(directory: Path, keys: TrustedKeys, *, keep_last: int, keep_days: float) -> list[Path]:
    """Delete the backups that have expired; returns them, oldest first.

    Only complete backups that a trusted key signed are deleted: what is damaged, of another installation or no backup
    is left alone. Each is renamed first, so that no half of one is ever listed, and a signal that asks this
    process to end waits until it is gone.

    Raises:
        BackupUnderWay: another process is writing a backup into the directory.
        OSError: one cannot be deleted.
    """
    with exclusively(directory):
        doomed = expired(newest_first(directory, keys), keep_last=keep_last, keep_days=keep_days, now=datetime.now(UTC))
        for path in doomed:
            draft = directory / f"{PARTIAL}{os.getpid()}-{secrets.token_hex(4)}"  # deleted later, should we be killed
            with uninterrupted():
                path.rename(draft)
                remove(draft)
    return doomed


def expired(kept: Iterable[KeptBackup], *, keep_last: int, keep_days: float, now: datetime) -> list[Path]:
    """The backups that may be deleted, oldest first.

    Args:
        kept: all backups, newest first. Those with a problem, or from the future, neither expire nor count.
        keep_last: so many complete ones never expire; at least 1.
        keep_days: younger ones never expire either.
        now: the present.
    """
    whole = [(each, each.taken_at) for each in kept if each.problem is None]
    past = [(each, at) for each, at in whole if at is not None and at <= now]
    older = past[max(keep_last, 1) :]
    return [each.path for each, at in reversed(older) if now - at >= timedelta(days=keep_days)]
