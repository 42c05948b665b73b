"""Back up a running PostgreSQL: a base backup with its WAL, which is complete or does not exist.

It is physical, not a dump, because it must keep transaction ids, on which the positions of the relay's cursors, the
journal and the stream depend, and sequences. Taking it, and restoring it, each take the time of a copy.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from interlock.db.schema import SCHEMA, in_schema
from interlock.supervisor.backup import unpack
from interlock.supervisor.backup.base_backup import BackupFailed, Progress, copy
from interlock.supervisor.backup.directory import PARTIAL, exclusively
from interlock.workers.audit import backup_manifest as manifest
from interlock.workers.audit.backup_manifest import BASE, KEYS, LOG, Manifest
from interlock.workers.audit.kept_backups import name_of
from interlock.workers.audit.signing_keys import signer
from interlock.workers.system.safe_remove import remove
from interlock.workers.system.uninterrupted import uninterrupted


def back_up(
    url: str, directory: Path, keys: Path, progress: Progress = lambda *_: None, *, replicating: str | None = None
) -> tuple[Path, Manifest]:
    """Back up the server of a database.

    Args:
        url: the database's URL for libpq.
        directory: where to put backups; each is a directory, named by its time.
        keys: the directory of the key that signs anchors and backups. Public keys are included, private keys never.
        progress: called with kilobytes.
        replicating: the URL with a role that has REPLICATION; None: the role in `url` has it.

    Returns:
        The backup's directory and manifest.

    Raises:
        BackupFailed: nothing is left behind.
        BackupUnderWay: another process is writing a backup into the directory.
        KeyFault: there are anchors, but the key that signed them is missing.
    """
    draft = directory / f"{PARTIAL}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with exclusively(directory) as lock, _removed_unless_renamed(draft):
            with psycopg.connect(url, autocommit=True) as connection:
                before = _server_state(connection)
                signing = signer(keys, may_make=before["anchor"] is None)
                copy(replicating or url, draft, progress, lock)
                _take_keys(keys, draft)
                after = _server_state(connection)
            made = _manifest(draft, before, after)
            made.write(draft, signing)
            _flush(*draft.rglob("*"), draft)  # before the rename, which marks the backup as complete
            final = directory / name_of(datetime.fromisoformat(made.taken_at))
            draft.rename(final)
            _flush(directory)
        return final, made
    except psycopg.OperationalError as error:
        message = str(error).strip().splitlines()[0]
        raise BackupFailed(
            f"the database does not answer: {message}. Check `interlock status` and DATABASE_URL"
        ) from error
    except OSError as error:
        raise BackupFailed(
            f"{error.filename or directory}: {error.strerror or error}; the unfinished backup was removed"
        ) from error


@contextlib.contextmanager
def _removed_unless_renamed(draft: Path) -> Iterator[None]:
    """Delete the draft at the end of a block, whatever ends it."""
    try:
        yield
    finally:
        with uninterrupted():
            remove(draft)


def _server_state(connection: "psycopg.Connection[Any]") -> dict[str, Any]:
    row = connection.execute(
        in_schema(
            "SELECT now(), current_setting('server_version_num')::integer / 10000, current_database(), current_user,"
            " (SELECT version_num FROM interlock.alembic_version), (SELECT count(*) FROM interlock.every_transition),"
            " (SELECT max(number) FROM interlock.anchors)"
        )
    ).fetchone()
    names = ("at", "postgres", "database", "role", "revision", "events", "anchor")
    return dict(zip(names, row or (), strict=True))


def _manifest(draft: Path, before: dict[str, Any], after: dict[str, Any]) -> Manifest:
    files = sorted(each for each in draft.rglob("*") if each.is_file())
    return Manifest(
        taken_at=after["at"].isoformat(),
        postgres=after["postgres"],
        schema=SCHEMA,
        revision=after["revision"],
        database=after["database"],
        role=after["role"],
        events_before=before["events"],
        events_after=after["events"],
        anchor=before["anchor"],
        files={str(each.relative_to(draft)): manifest.checksum(each) for each in files},
        sizes={str(each.relative_to(draft)): each.stat().st_size for each in files},
        unpacked=unpack.measure(draft / BASE) + unpack.measure(draft / LOG),
    )


def _take_keys(keys: Path, draft: Path) -> None:
    (draft / KEYS).mkdir()
    for key in keys.glob("*.pub"):
        shutil.copy2(key, draft / KEYS / key.name)


def _flush(*paths: Path) -> None:
    for each in paths:
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
