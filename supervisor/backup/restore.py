"""Restore a backup into an empty home: check it first, build it in a temporary directory, and rename it if complete."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from interlock.db.schema import ENGINE, SCHEMA, in_schema
from interlock.supervisor import orphans
from interlock.supervisor.backup import unpack
from interlock.supervisor.backup.base_backup import Progress
from interlock.supervisor.home import PRIVATE, Home, home_of
from interlock.supervisor.processes import lock
from interlock.supervisor.servers import data_dirs, endpoints, handover, postgres
from interlock.workers.audit import backup_manifest as manifest
from interlock.workers.audit.backup_manifest import BASE, LOG, PUBLIC_KEY, BackupUnusable, Manifest, TrustedKeys
from interlock.workers.settings import Settings
from interlock.workers.system.users import Account, server_account
from interlock.workflows.errors import InterlockError, Refused


class RestoreFailed(InterlockError):
    """A backup could not be restored, and nothing of it is left; the same command can be repeated."""


class NotEmpty(Refused):
    """The home is not empty. A backup is restored into an empty home only; nothing was changed."""


# Replaces the backup's configuration, which could name programs and libraries to run. Only the login rules are set.
CONFIGURATION = {
    "postgresql.conf": "",
    "postgresql.auto.conf": "",
    "pg_hba.conf": postgres.HBA,
    "pg_ident.conf": "",
}
KEY_BYTES = 1000


def restore(
    settings: Settings,
    backup: Path,
    known: Sequence[str],
    keys: TrustedKeys | None,
    progress: Progress = lambda *_: None,
) -> Manifest:
    """Restore a backup into a new home; its servers are not started.

    The roles get new passwords, and the configuration is our own. The broker is not restored: it holds only wake-ups.
    Nothing is written outside the home and its data directory. If root runs this, the data are written as the servers'
    user.

    Args:
        settings: the settings of the new home.
        backup: the directory that `back_up` made.
        known: the schema revisions that this installation knows.
        keys: the trusted keys, one of which must have signed the backup; None: accept any backup.
        progress: called with the bytes that were checked.

    Raises:
        BackupUnusable: the backup is damaged, incomplete, of a version this installation cannot restore, or not
            signed by a trusted key.
        NotEmpty: the home has data.
        AlreadyRunning: the home is supervised.
        RestoreFailed: the disk is full or not writable.
    """
    found = manifest.read(backup, keys)
    _require_restorable(backup, found, known)
    home = home_of(settings)
    _require_empty(home)
    manifest.check(backup, found, progress)
    home.create()
    with lock.held(home):
        account = server_account(settings)
        data = data_dirs.data_directory(home, "postgres", None, account)
        if data.exists() and any(data.iterdir()):
            raise NotEmpty(f"{data} is not empty: move it away, or restore --into another home")
        try:
            _build(home, data, backup, found, account)
        except OSError as error:
            size = sum(found.sizes.values()) / 1e6
            raise RestoreFailed(
                f"{data} could not be restored from {backup}: {error.strerror or error}. It was removed again. "
                f"It takes several times the backup's {size:,.0f} MB there"
            ) from error
        # The journal starts anew. The relay creates the directory only for the first event ever; later it must exist.
        settings.state_directory.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    return found


def _require_restorable(backup: Path, found: Manifest, known: Sequence[str]) -> None:
    if str(found.postgres) != postgres.MAJOR:
        raise BackupUnusable(
            f"{backup} was made by PostgreSQL {found.postgres}, this is {postgres.MAJOR}: restore it on a "
            "server of that version"
        )
    if found.schema != SCHEMA:
        raise BackupUnusable(
            f"{backup} has its tables in schema {found.schema}: restore it with INTERLOCK_SCHEMA={found.schema}"
        )
    if found.revision not in known:
        raise BackupUnusable(
            f"{backup} has schema revision {found.revision}, newer than this installation knows ({max(known)}): "
            "install the Interlock that made it"
        )
    if (found.database, found.role) != (endpoints.DATABASE, ENGINE):
        raise BackupUnusable(
            f"{backup} is of database {found.database} and role {found.role}, your own server's: unpack {BASE}, and "
            f"{LOG} into its pg_wal, as the data directory of a server of yours"
        )


def _require_empty(home: Home) -> None:
    for there in (home.path / "postgres", home.path / "valkey", home.servers):
        if there.exists():
            raise NotEmpty(
                f"{there} exists: a backup is restored only into an empty home. Use --into ANOTHER, or move it away "
                f"(`interlock down`, then `mv {home.path} {home.path}.old`)"
            )


def _build(home: Home, data: Path, backup: Path, found: Manifest, account: Account | None) -> None:
    _require_room(data.parent, backup, found)
    anew = replace(
        endpoints.Servers(),
        postgres_passwords=endpoints.new_passwords(),
        postgres_data=str(data),
    )
    with handover.build_directory(data) as workshop:
        draft = handover.directory_for(account, workshop / "data")
        with manifest.opened(backup / BASE) as base, manifest.opened(backup / LOG) as log, _acting_as(account):
            left = found.unpacked
            left -= unpack.unpack(backup / BASE, base, draft, unpack.DATA, checksum=found.files[BASE], limit=left)
            unpack.unpack(backup / LOG, log, draft / "pg_wal", unpack.WAL, checksum=found.files[LOG], limit=left)
            for name, text in CONFIGURATION.items():
                (draft / name).write_text(text)
        program = str(postgres.binaries(home, account) / "postgres")
        postgres.run(
            [program, "--single", "-D", str(draft), endpoints.DATABASE],
            account=account,
            environment={**postgres.ENVIRONMENT, orphans.MARK: str(home.path)},
            stdin="".join(f"{each}\n" for each in _anew(backup, found, anew)),
        )
        if any((draft / "pg_tblspc").iterdir()):
            raise BackupUnusable(f"{backup} is not a backup by Interlock: its log creates a tablespace")
        os.sync()
        draft.rename(data)
    _take_keys(home, backup, found)
    endpoints.save(home, anew)


def _require_room(place: Path, backup: Path, found: Manifest) -> None:
    free = shutil.disk_usage(place).free
    if found.unpacked > free:
        raise RestoreFailed(
            f"{backup} takes {found.unpacked / 1e6:,.0f} MB unpacked, and {place} has {free / 1e6:,.0f} MB: "
            "make room there, or restore --into another home"
        )


@contextlib.contextmanager
def _acting_as(account: Account | None) -> Iterator[None]:
    """Run the block with the account's effective user and group, for this whole process."""
    if account is None:
        yield
        return
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(account.gid)
    os.seteuid(account.uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


def _take_keys(home: Home, backup: Path, found: Manifest) -> None:
    """Copy the public keys, with which the restored anchors are verified."""
    directory = home.path / "keys"
    directory.mkdir(mode=0o700, exist_ok=True)
    for name in filter(PUBLIC_KEY.fullmatch, found.files):
        with manifest.opened(backup / name) as file:
            content = file.read(KEY_BYTES)
        if sha256(content).hexdigest() != found.files[name]:
            raise BackupUnusable(f"{backup / name} was changed during the restore")
        (directory / Path(name).name).write_bytes(content)


def _anew(backup: Path, found: Manifest, anew: endpoints.Servers) -> Sequence[str]:
    """SQL for the server after recovery: set new passwords, and record the first transaction id after the restore."""
    name = re.sub(r"[^\w.-]", "_", backup.name, flags=re.ASCII)  # it becomes part of SQL
    return (
        postgres.FEW_ITERATIONS,
        *postgres.passwords(anew.postgres_passwords),
        in_schema(
            "INSERT INTO interlock.restores (first_xid, taken_at, backup)"
            f" VALUES (pg_current_xact_id(), '{found.taken_at}', '{name}')"
        ),
    )
