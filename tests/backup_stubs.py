"""Backups that hold nothing, for tests of what is read from their manifests alone."""

from datetime import datetime
from hashlib import sha256
from pathlib import Path

from interlock.workers.audit import signing_keys
from interlock.workers.audit.backup_manifest import BASE, LOG, Manifest
from interlock.workers.audit.kept_backups import name_of
from interlock.workers.settings import Settings


def stub_backup(chosen: Settings, taken_at: datetime) -> Path:
    """Put a backup of that time, signed by this installation, into its directory of backups."""
    path = chosen.backups_directory / name_of(taken_at)
    path.mkdir(parents=True)
    for name in (BASE, LOG):
        (path / name).touch()
    files, sizes = dict.fromkeys((BASE, LOG), sha256().hexdigest()), dict.fromkeys((BASE, LOG), 0)
    said = Manifest(
        taken_at.isoformat(), 18, "interlock", "0001", "interlock", "interlock", 0, 0, None, files, sizes, 0
    )
    said.write(path, signing_keys.signer(chosen.signing_directory, may_make=True))
    return path
