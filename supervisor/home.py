"""The home (`INTERLOCK_HOME`): its layout, and how its files are written."""

import contextlib
import hashlib
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from interlock.supervisor import home_marker
from interlock.workers.settings import SERVERS_FILE, Settings
from interlock.workers.system import write_once
from interlock.workers.system.safe_remove import remove
from interlock.workers.system.safe_walk import DIRECTORY
from interlock.workflows.errors import InterlockError

DRILL = "interlock-drill"  # the home of the temporary installation of `interlock backup drill`

# What Interlock creates there besides the marker, as glob patterns: `interlock down --purge` deletes only these.
OWN_ENTRIES = (
    ".state",
    "audit",
    "keys",
    "beat-schedule*",
    "lock",
    "logs",
    "output",
    "worktrees",
    "archive",
    DRILL,
    "postgres",
    "postgres.new-*",
    "processes.json*",
    "run",
    f"{SERVERS_FILE}*",
    "valkey",
)


OURS_ALONE = ("logs", "output", "run", ".state", "audit", "keys", "archive", "backups")
PRIVATE, PASSABLE = 0o700, 0o711


@dataclass(frozen=True)
class Home:
    """The home of one installation, as an absolute path."""

    path: Path

    @property
    def lock(self) -> Path:
        """Locked (flock) by the supervisor; contains its pid."""
        return self.path / "lock"

    @property
    def servers(self) -> Path:
        """Addresses and passwords, 0600; kept across restarts."""
        return self.path / SERVERS_FILE

    @property
    def processes(self) -> Path:
        """The last known state of the parts, written by the supervisor."""
        return self.path / "processes.json"

    @property
    def beat_schedule(self) -> Path:
        """Celery beat's record of what it last sent."""
        return self.path / "beat-schedule"

    @property
    def tag(self) -> str:
        """Eight hex digits that differ between homes; part of node names and of directories outside the home."""
        return hashlib.sha256(os.fsencode(self.path)).hexdigest()[:8]

    def log(self, part: str) -> Path:
        """The log of a part."""
        return self.path / "logs" / f"{part}.log"

    def ready_file(self, part: str) -> Path:
        """The file that a part creates when it is ready (`INTERLOCK_READY_FILE`)."""
        return self.path / "run" / f"{part}.ready"

    @property
    def scratch(self) -> Path:
        """Temporary files of the workers; emptied at each start."""
        return self.path / "run" / "tmp"

    def create(self, *, adopt: bool = False) -> None:
        """Create the home's directories. The home must not exist yet, be empty, or be marked as a home.

        Raises `NotAHome` or `OthersHome` otherwise (unless `adopt`), and `InterlockError` if permissions are missing.
        Other users can neither list the home nor read anything in it; the modes of an older home are tightened. Root's
        home can be passed through, since servers and commands run as other users, each with its own directory in it.
        """
        try:
            self.claim(adopt=adopt)
            for private in ("logs", "run"):
                (self.path / private).mkdir(mode=PRIVATE, exist_ok=True)
            self.scratch.mkdir(mode=PRIVATE, exist_ok=True)
            for private in OURS_ALONE:
                tighten(self.path / private, PRIVATE)
            tighten(self.path / "worktrees", PASSABLE if os.geteuid() == 0 else PRIVATE)
        except OSError as refused:
            raise InterlockError(f"{self.path} cannot be used: {refused}. Set INTERLOCK_HOME.") from refused

    def claim(self, *, adopt: bool = False) -> None:
        """Create the directory if it does not exist, and mark it as a home."""
        if not self.path.exists():
            self.path.mkdir(parents=True)
        home_marker.claim(self.path, adopt=adopt)
        tighten(self.path, PASSABLE if os.geteuid() == 0 else PRIVATE)

    def empty_scratch(self) -> None:
        """Delete files that killed workers left."""
        with contextlib.suppress(OSError):
            remove(self.scratch)
        self.scratch.mkdir(mode=0o700, exist_ok=True)


def home_of(settings: Settings) -> Home:
    """The home that the settings name, with symlinks resolved, because its path is its identity."""
    return Home(settings.home.resolve())


def tighten(directory: Path, mode: int) -> None:
    """Set a directory's mode, if it exists and is our own; a link is not followed."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        handle = os.open(directory, DIRECTORY)
        try:
            found = os.fstat(handle)
            if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) != mode:
                os.fchmod(handle, mode)
        finally:
            os.close(handle)


def write_atomically(path: Path, text: str) -> None:
    """Replace the content of `path`, 0600, durably; readers see either the old or the new content."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    write_once.create(draft, 0o600, text.encode())
    draft.replace(path)
