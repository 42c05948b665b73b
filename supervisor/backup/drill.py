"""A drill: restore a backup into a temporary installation, verify it there, and remove everything again."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from interlock.db import migrate
from interlock.db.audit.verify import Problem
from interlock.supervisor import daemon
from interlock.supervisor.backup.directory import lock
from interlock.supervisor.backup.restore import RestoreFailed, restore
from interlock.supervisor.embedded import running
from interlock.supervisor.home import DRILL, home_of, write_atomically
from interlock.supervisor.purge import purge
from interlock.workers.audit import backup_drills, backup_manifest
from interlock.workers.audit.backup_manifest import BackupUnusable, Manifest, TrustedKeys
from interlock.workers.audit.verify import verify
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.errors import Refused

ROOM = 2  # the running installation keeps as much free space as the drill takes
# What the running installation has chosen for itself.
OWN = (
    *(
        "database_url",
        "owner_url",
        "broker_url",
        "redis_url",
        "postgres_port",
        "redis_port",
        "flower_port",
        "metrics_port",
    ),
    *("signing", "audit", "state", "worktrees", "task_output", "archive", "backup_directory"),
)

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total) in a unit of the stage's own; a total of 0 is unknown."""


class DrillUnderWay(Refused):
    """Another drill uses the directory. Wait until it has ended, or name another directory; nothing was changed."""


@dataclass(frozen=True)
class Drilled:
    """The outcome of a drill.

    Attributes:
        backup: the backup's directory.
        problem: why the backup cannot be used; None if it can.
        taken_at: when it was completed, ISO; None if that could not be read, like the next ones.
        age_seconds: its age.
        instances, events: how many it contains.
        problems: what the verification of history found.
        restore_seconds: the time to check it, unpack it and recover the database.
        start_seconds: the time until its servers were ready.
        verify_seconds: the time to verify its history.
    """

    backup: Path
    problem: str | None = None
    taken_at: str | None = None
    age_seconds: float | None = None
    instances: int | None = None
    events: int | None = None
    problems: Sequence[Problem] = field(default_factory=list)
    restore_seconds: float | None = None
    start_seconds: float | None = None
    verify_seconds: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the backup was restored, is complete, and its history verifies."""
        return self.problem is None and not self.problems


def drill(
    chosen: Settings, backup: Path, within: Path, keys: TrustedKeys, progress: Progress = lambda *_: None
) -> Drilled:
    """Restore a backup beside whatever is running, with servers on free ports, and verify its history.

    Args:
        chosen: this installation's settings; the temporary one has its own directories, ports and servers.
        backup: the backup's directory.
        within: an existing directory, in which the temporary installation is made; what a killed drill left there is
            deleted first.
        keys: the trusted keys, one of which must have signed the backup.
        progress: called for each stage.

    Returns:
        The outcome; an unusable backup is one, too. It is recorded beside the installation's own backups.

    Raises:
        DrillUnderWay: another drill is running there.
        NotAHome: the directory that the drill would use is somebody else's.
        RestoreFailed: there is not enough room.
        ServerFault: the restored server does not start.
    """
    temporary = chosen.model_copy(update={"home": within / DRILL, "anchor_directories": ()} | dict.fromkeys(OWN))
    with _alone(within) as handle, _removed(temporary):
        try:
            found = _drilled(temporary, backup, keys, handle, progress)
        except BackupUnusable as unusable:
            found = Drilled(backup, str(unusable))
    if backup.resolve().parent == chosen.backups_directory.resolve():
        _record(found)
    return found


def _record(found: Drilled) -> None:
    place, now = found.backup.parent, datetime.now(UTC)
    problem = found.problem or (f"{len(found.problems)} problems in its history" if found.problems else None)
    with contextlib.suppress(OSError):  # it may be mounted to be read only; the outcome counts all the same
        before = backup_drills.last(place)
        proven_at = now if problem is None else before.proven_at if before else None
        said = backup_drills.LastDrill(found.backup.name, now, problem, proven_at)
        write_atomically(place / backup_drills.NAME, json.dumps(asdict(said), default=datetime.isoformat) + "\n")


def _drilled(temporary: Settings, backup: Path, keys: TrustedKeys, handle: int, progress: Progress) -> Drilled:
    found = backup_manifest.read(backup, keys)
    _require_room(temporary.home.parent, backup, found)
    began = time.monotonic()
    restore(temporary, backup, migrate.revisions(), keys, lambda done, total: _checked(progress, done, total))
    restored = time.monotonic()
    progress("starting", 0, 0)
    with running(temporary, discard=True, inherits=[handle]):
        started = time.monotonic()
        runtime = Runtime(temporary)
        try:
            migrate.upgrade(runtime.owned)
            verdict = verify(runtime, lambda done: progress("verifying", done, found.events_before), every_line=False)
        finally:
            runtime.close()
        verified = time.monotonic()
        progress("removing", 0, 0)
    lost = verdict.transitions < found.events_before
    return Drilled(
        backup,
        f"{backup} has {verdict.transitions:,} events, its manifest says {found.events_before:,}" if lost else None,
        found.taken_at,
        (datetime.now(UTC) - datetime.fromisoformat(found.taken_at)).total_seconds(),
        verdict.instances,
        verdict.transitions,
        verdict.problems,
        restored - began,
        started - restored,
        verified - started,
    )


def _checked(progress: Progress, done: int, total: int) -> None:
    if done < total:
        progress("checking", done, total)
    else:
        progress("restoring", 0, 0)


def _require_room(within: Path, backup: Path, found: Manifest) -> None:
    free = shutil.disk_usage(within).free
    if found.unpacked * ROOM > free:
        raise RestoreFailed(
            f"{backup} takes {found.unpacked / 1e6:,.0f} MB unpacked, and a drill leaves as much free; {within} has "
            f"{free / 1e6:,.0f} MB: make room there, or give --in another directory"
        )


@contextlib.contextmanager
def _alone(within: Path) -> Iterator[int]:
    """Lock the directory for the duration of a block, and as long as another process has the yielded descriptor."""
    handle = os.open(within, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock(handle, DrillUnderWay(f"another drill is running in {within}: wait until it has ended, or give --in"))
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def _removed(temporary: Settings) -> Iterator[None]:
    """Before and after a block, stop and delete the temporary installation."""
    _remove(temporary)
    try:
        yield
    finally:
        _remove(temporary)


def _remove(temporary: Settings) -> None:
    daemon.stop(temporary)
    purge(home_of(temporary))
