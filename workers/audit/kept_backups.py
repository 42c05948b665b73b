"""The backups in a directory, as their manifests describe them. A name proves nothing: the signature does."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from interlock.workers.audit import backup_manifest
from interlock.workers.audit.backup_manifest import BackupUnusable, Manifest, TrustedKeys, UnknownKey
from interlock.workers.audit.signing_keys import trusted_keys
from interlock.workers.settings import Settings

NAME = re.compile(r"interlock-\d{8}T\d{12}Z")


@dataclass(frozen=True, slots=True)
class KeptBackup:
    """A directory that is named like a backup.

    Attributes:
        path: the directory.
        manifest: its manifest; None if it cannot be read, or no trusted key signed it.
        problem: why it cannot be restored; None if it is complete, as far as its manifest and the sizes of its files
            show. Checksums are not compared.
        foreign: whether a key that is not trusted signed it, as with a backup of another installation.
    """

    path: Path
    manifest: Manifest | None
    problem: str | None
    foreign: bool = False

    @property
    def taken_at(self) -> datetime | None:
        """When it was completed, by the database's clock; None without a manifest."""
        return None if self.manifest is None else datetime.fromisoformat(self.manifest.taken_at)


def name_of(taken_at: datetime) -> str:
    """The name of a backup's directory; names sort by time."""
    return f"interlock-{taken_at.astimezone(UTC):%Y%m%dT%H%M%S%fZ}"


def newest_first(directory: Path, keys: TrustedKeys) -> Iterator[KeptBackup]:
    """The backups in a directory, those with problems too; none if there is no such directory.

    Args:
        directory: the parent directory of backups.
        keys: the trusted keys.

    Raises:
        OSError: the directory cannot be read.
    """
    with contextlib.suppress(FileNotFoundError):
        for path in sorted(directory.iterdir(), key=lambda each: each.name, reverse=True):
            if NAME.fullmatch(path.name):
                yield _examined(path, keys)


def age_seconds(directory: Path, keys: TrustedKeys, now: datetime) -> float | None:
    """The age of the newest complete backup; None if there is none.

    A backup from the future, which a clock that was wrong leaves, does not count: it would hide that none is taken.

    Raises:
        OSError: the directory cannot be read.
    """
    for each in newest_first(directory, keys):
        if each.problem is None and each.taken_at is not None and each.taken_at <= now:
            return (now - each.taken_at).total_seconds()
    return None


def newest_age_seconds(chosen: Settings) -> float | None:
    """The age of this installation's newest complete backup; None if there is none.

    Raises:
        KeyFault: a public key cannot be read.
        OSError: the directory cannot be read.
    """
    return age_seconds(chosen.backups_directory, trusted_keys(chosen.signing_directory), datetime.now(UTC))


def complete(chosen: Settings) -> int:
    """How many complete backups of this installation there are.

    Raises:
        KeyFault: a public key cannot be read.
        OSError: the directory cannot be read.
    """
    kept = newest_first(chosen.backups_directory, trusted_keys(chosen.signing_directory))
    return sum(each.problem is None for each in kept)


def are_watched(chosen: Settings) -> bool:
    """Whether Interlock backs PostgreSQL up, or is told where its backups are."""
    return chosen.database_url is None or chosen.backup_directory is not None


def _examined(path: Path, keys: TrustedKeys) -> KeptBackup:
    try:
        found = backup_manifest.read(path, keys)
    except BackupUnusable as unusable:
        return KeptBackup(path, None, str(unusable), foreign=isinstance(unusable, UnknownKey))
    return KeptBackup(path, found, _problem(path, found))


def _problem(path: Path, found: Manifest) -> str | None:
    if name_of(datetime.fromisoformat(found.taken_at)) != path.name:
        return f"{path} was renamed: it was taken at {found.taken_at}"
    for name in found.files:
        try:
            size = (path / name).lstat().st_size
        except OSError as missing:
            return f"{path} is damaged: {name} cannot be read ({missing.strerror})"
        if size != found.sizes.get(name):
            return f"{path} is damaged: {name} has {size:,} bytes, its manifest says {found.sizes.get(name, 0):,}"
    return None
