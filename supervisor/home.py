"""The data directory (`INTERLOCK_HOME`): what lies where in it, and how its files are written."""

import hashlib
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from workers.settings import SERVERS_FILE, Settings
from workflows.errors import InterlockError

# What we make there, as glob patterns: `interlock down --purge` deletes these and nothing else.
OWN_ENTRIES = (
    ".state",
    "audit",
    "keys",
    "beat-schedule*",
    "lock",
    "logs",
    "worktrees",
    "archive",
    "postgres",
    "postgres.new-*",
    "processes.json*",
    "run",
    f"{SERVERS_FILE}*",
    "valkey",
)


@dataclass(frozen=True)
class Home:
    """The absolute data directory of one Interlock."""

    path: Path

    @property
    def lock(self) -> Path:
        """Held (flock) by the supervisor; holds its pid."""
        return self.path / "lock"

    @property
    def servers(self) -> Path:
        """Addresses and passwords, 0600; kept across restarts."""
        return self.path / SERVERS_FILE

    @property
    def processes(self) -> Path:
        """What the supervisor last knew of its parts."""
        return self.path / "processes.json"

    @property
    def beat_schedule(self) -> Path:
        """Where Celery beat remembers what it last sent."""
        return self.path / "beat-schedule"

    @property
    def tag(self) -> str:
        """Eight hex digits that differ between homes: node names and places outside the home carry them."""
        return hashlib.sha256(os.fsencode(self.path)).hexdigest()[:8]

    def log(self, part: str) -> Path:
        """The log of a part."""
        return self.path / "logs" / f"{part}.log"

    def ready_file(self, part: str) -> Path:
        """A worker touches it when it consumes (`INTERLOCK_READY_FILE`)."""
        return self.path / "run" / f"{part}.ready"

    @property
    def scratch(self) -> Path:
        """Temporary files of the workers; emptied at each start."""
        return self.path / "run" / "tmp"

    def create(self) -> None:
        """Make the directories. Raises `InterlockError` where we may not.

        The home stays open to pass through, whatever root's umask: the servers run as another user. What is
        secret in it is 0600.
        """
        try:
            self._create()
        except OSError as refused:
            raise InterlockError(f"{self.path} cannot be used: {refused}. Set INTERLOCK_HOME.") from refused

    def _create(self) -> None:
        if not self.path.exists():
            self.path.mkdir(parents=True)
            self.path.chmod(0o755)
        for private in ("logs", "run"):
            (self.path / private).mkdir(mode=0o700, exist_ok=True)
        self.scratch.mkdir(mode=0o700, exist_ok=True)

    def empty_scratch(self) -> None:
        """Delete what killed workers left."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(mode=0o700)


def home_of(settings: Settings) -> Home:
    """The home these settings name, symlinks resolved: its path is its identity."""
    return Home(settings.home.resolve())


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` by `text`, 0600, durably: a reader sees the old or the new, never a half."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
