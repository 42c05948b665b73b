"""Put a backup into an empty home: checked first, built beside its place, and there whole or not at all."""

import os
import secrets
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from supervisor import lock, manifest, places, postgres, servers, strays
from supervisor.accounts import Account, server_account
from supervisor.backups import BASE, KEYS, LOG, Progress
from supervisor.home import Home, home_of
from supervisor.manifest import BackupUnusable, Manifest
from workers.settings import Settings
from workflows.errors import InterlockError, Refused


class RestoreFailed(InterlockError):
    """A home could not be made out of a backup, and nothing of it was left; the same command may be given again."""


class NotEmpty(Refused):
    """Something is there already. A backup is restored into an empty home only; nothing was touched."""


def restore(settings: Settings, backup: Path, known: Sequence[str], progress: Progress = lambda *_: None) -> Manifest:
    """Make a home out of a backup; its servers are not started.

    The database gets a new password. Nothing of the broker is restored: it holds hints only.

    Args:
        settings: of the home to make.
        backup: the directory that `back_up` made.
        known: the schema revisions this installation knows.
        progress: told bytes, first of checking.

    Raises:
        BackupUnusable: damaged, half, or of a version this installation cannot restore.
        NotEmpty: the home has data.
        AlreadyRunning: somebody supervises the home.
        RestoreFailed: the disk is full, or may not be written.
    """
    found = manifest.read(backup)
    _require_restorable(backup, found, known)
    home = home_of(settings)
    _require_empty(home)
    manifest.check(backup, found, progress)
    home.create()
    with lock.held(home):
        account = server_account(settings.run_as)
        data = places.data_directory(home, "postgres", None, account)
        if data.exists() and any(data.iterdir()):
            raise NotEmpty(f"{data} is not empty: move it away, or restore --into another home")
        try:
            _build(home, data, backup, found, account)
        except OSError as error:
            size = sum(found.sizes.values()) / 1e6
            raise RestoreFailed(
                f"{data} could not be made out of {backup}: {error.strerror or error}. Nothing of it was left. "
                f"It takes several times the backup's {size:,.0f} MB there"
            ) from error
    return found


def _require_restorable(backup: Path, found: Manifest, known: Sequence[str]) -> None:
    if str(found.postgres) != postgres.MAJOR:
        raise BackupUnusable(
            f"{backup} was made by PostgreSQL {found.postgres}, this is {postgres.MAJOR}: restore it on a "
            "server of that version"
        )
    if found.revision not in known:
        raise BackupUnusable(
            f"{backup} has schema revision {found.revision}, newer than this installation knows ({max(known)}): "
            "install the Interlock that made it"
        )
    if (found.database, found.role) != (postgres.DATABASE, postgres.SUPERUSER):
        raise BackupUnusable(
            f"{backup} is of database {found.database} and role {found.role}, your own server's: unpack {BASE}, and "
            f"{LOG} into its pg_wal, as the data directory of a server of yours"
        )


def _require_empty(home: Home) -> None:
    for there in (home.path / "postgres", home.path / "valkey", home.servers):
        if there.exists():
            raise NotEmpty(
                f"{there} exists: a backup is restored into an empty home. Say --into ANOTHER, or move it away "
                f"(`interlock down`, then `mv {home.path} {home.path}.old`)"
            )


def _build(home: Home, data: Path, backup: Path, found: Manifest, account: Account | None) -> None:
    for abandoned in data.parent.glob(f"{data.name}.new-*"):
        shutil.rmtree(abandoned)
    workshop = data.with_name(f"{data.name}.new-{secrets.token_hex(4)}")
    workshop.mkdir(mode=0o700)
    password = secrets.token_hex(16)
    try:
        draft = workshop / "data"
        draft.mkdir(mode=0o700)
        _unpack(backup / BASE, draft)
        _unpack(backup / LOG, draft / "pg_wal")
        (draft / "pg_hba.conf").write_text(postgres.HBA)
        _give(workshop, account)
        statements = _anew(backup, found, password)
        program = str(postgres.binaries(home, account) / "postgres")
        postgres.run(
            [program, "--single", "-D", str(draft), postgres.DATABASE],
            account=account,
            environment={**postgres.ENVIRONMENT, strays.MARK: str(home.path)},
            stdin="".join(f"{each}\n" for each in statements),
        )
        os.sync()
        draft.rename(data)
    finally:
        shutil.rmtree(workshop)
    keys = home.path / "keys"
    keys.mkdir(mode=0o700, exist_ok=True)
    for key in (backup / KEYS).glob("*.pub"):
        shutil.copy2(key, keys / key.name)
    servers.save(home, replace(servers.Servers(), postgres_password=password, postgres_data=str(data)))


def _unpack(packed: Path, into: Path) -> None:
    with tarfile.open(packed) as archive:
        archive.extractall(into, filter="tar")


def _give(workshop: Path, account: Account | None) -> None:
    if account is not None:
        for each in [workshop, *workshop.rglob("*")]:
            os.chown(each, account.uid, account.gid, follow_symlinks=False)


def _anew(backup: Path, found: Manifest, password: str) -> Sequence[str]:
    """What a server that has recovered to the backup's end is told: a new password, and where a new time begins."""
    name = backup.name.replace("'", "")
    return (
        f"ALTER ROLE {postgres.SUPERUSER} PASSWORD '{password}'",
        "INSERT INTO restores (first_xid, taken_at, backup)"
        f" VALUES (pg_current_xact_id(), '{found.taken_at}', '{name}')",
    )
