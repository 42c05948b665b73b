"""Back up a running PostgreSQL: a base backup with its WAL, which is complete or does not exist.

It is physical, not a dump, because it must keep transaction ids, on which the positions of the relay's cursors, the
journal and the stream depend, and sequences. Taking it, and restoring it, each take the time of a copy.
"""

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from interlock.db.schema import SCHEMA, in_schema
from interlock.supervisor.backup import manifest, unpack
from interlock.supervisor.backup.manifest import BASE, KEYS, LOG, Manifest
from interlock.supervisor.servers import postgres
from interlock.workers.audit.signing_keys import signer
from interlock.workers.system.safe_remove import remove
from interlock.workflows.errors import InterlockError

PARTIAL = ".partial-"
ERROR = re.compile(rb"pg_basebackup: (?:error|detail|hint): (.*)")
DONE = re.compile(rb"(\d+)/(\d+) kB")
LIBPQ = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
}

Progress = Callable[[int, int], None]
"""Told (done, total), in any unit."""


class BackupFailed(InterlockError):
    """A backup could not be taken, and nothing of it is left. The message is that of pg_basebackup."""


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
        KeyFault: there are anchors, but the key that signed them is missing.
    """
    draft = directory / f"{PARTIAL}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _clear(directory)
        with psycopg.connect(url, autocommit=True) as connection:
            before = _server_state(connection)
            signing = signer(keys, may_make=before["anchor"] is None)
            _copy(replicating or url, draft, progress)
            _take_keys(keys, draft)
            after = _server_state(connection)
        made = _manifest(draft, before, after)
        made.write(draft, signing)
        _flush(draft)
        final = directory / f"interlock-{datetime.fromisoformat(made.taken_at).astimezone(UTC):%Y%m%dT%H%M%S%fZ}"
        draft.rename(final)
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
    finally:
        remove(draft)


def _clear(directory: Path) -> None:
    """Delete drafts of killed backups: those whose process no longer exists."""
    for left in directory.glob(f"{PARTIAL}*"):
        pid = left.name.removeprefix(PARTIAL).partition("-")[0]
        if not pid.isdigit() or not Path(f"/proc/{pid}").exists():
            remove(left)


def _copy(url: str, draft: Path, progress: Progress) -> None:
    parameters = conninfo_to_dict(url)
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"} | {
        LIBPQ[name]: str(value) for name, value in parameters.items() if name in LIBPQ
    }
    command = [str(postgres.programs() / "pg_basebackup"), f"--pgdata={draft}", "--format=tar"]
    command += ["--compress=client-gzip:1", "--wal-method=stream", "--checkpoint=fast", "--progress", "--no-password"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stderr is not None  # it is a PIPE
        line = b""
        errors: list[str] = []
        try:
            for line in _lines(process.stderr):
                if found := DONE.search(line):
                    progress(int(found[1]), int(found[2]))
                elif found := ERROR.match(line):
                    errors.append(found[1].decode(errors="replace").strip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise BackupFailed(_reason("; ".join(errors) or line.decode(errors="replace").strip()))


def _reason(output: str) -> str:
    if "No space left" in output:
        return f"{output}. Make room there, or name another directory: interlock backup DIR"
    if "FATAL" in output or "server version" in output:
        return (
            f"{output}. The role must be allowed to replicate and the server be PostgreSQL {postgres.MAJOR} or older; "
            "of a managed one, use the provider's own backups."
        )
    return output


def _lines(stream: Any) -> Iterator[bytes]:
    """A program's output, split at carriage returns and line ends."""
    held = b""
    while chunk := stream.read1(4096):
        *whole, held = re.split(rb"[\r\n]", held + chunk)
        yield from filter(None, whole)
    if held:
        yield held


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


def _flush(draft: Path) -> None:
    """Flush to disk before the rename that marks the backup as complete."""
    for each in [*draft.rglob("*"), draft]:
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
