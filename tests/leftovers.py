"""Keep all files of a test session in one directory, and leave nothing behind, however the session ends.

Leftovers are recognized by marks on processes and directories, not by comparison with the state before, because other
sessions may run at the same time.
"""

import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.util import Finalize
from pathlib import Path

import psutil
import pytest

from interlock.supervisor import orphans
from interlock.supervisor.servers import data_dirs

LEFT = pytest.StashKey[list[str]]()
ROOTS = pytest.StashKey[tuple[str, ...]]()
LAST = -1000  # priority: after multiprocessing has deleted its own directory in ours
MEMORY, ROOM_BYTES = "/dev/shm", 8 << 30  # noqa: S108
GRACE_SECONDS = 15.0  # processes of xdist and fork servers end shortly after the last test


def begin(config: pytest.Config) -> None:
    """Put all temporary files of this session and its processes into a directory that is deleted at the end.

    This includes pytest's own files: pytest puts the files of all of a user's sessions in one place, and a session that
    ends can delete those of another that still runs.
    """
    own = tempfile.mkdtemp(prefix="interlock-tests-", dir=_in_memory())
    os.chmod(own, 0o755)  # noqa: S103 - servers of another user work in it
    os.environ["TMPDIR"] = tempfile.tempdir = own
    root = own if config.option.basetemp else os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", own)
    config.stash[ROOTS] = (own, str(config.option.basetemp or root))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that cleanups run
    Finalize(None, shutil.rmtree, (own,), {"ignore_errors": True}, LAST)


def _in_memory() -> str | None:
    """A directory in memory, if there is room: databases are copied ten times as fast there."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return None
    found = os.statvfs(MEMORY)
    room = min(found.f_bavail * found.f_frsize, psutil.virtual_memory().available)
    return MEMORY if room >= ROOM_BYTES and not found.f_flag & os.ST_NOEXEC else None


def finish(session: pytest.Session) -> None:
    """End and delete what is left behind; if there is anything, a session that was not interrupted fails."""
    roots = session.config.stash[ROOTS]
    found = list(_processes(roots))
    _, staying = psutil.wait_procs(found, timeout=GRACE_SECONDS)
    left = [f"process {each.pid}: {_words(each)}" for each in staying]
    orphans.end(staying)
    for place in _outside(roots):
        left.append(f"directory {place}, of {(place / data_dirs.OWNER).read_text().strip()}")
        shutil.rmtree(place)
    session.config.stash[LEFT] = left
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def report(config: pytest.Config, write: Callable[[str], None]) -> None:
    """Print what was left behind."""
    if left := config.stash.get(LEFT, []):
        write("left behind by tests, and now gone:\n" + "".join(f"  {each}\n" for each in left))


def _processes(roots: tuple[str, ...]) -> Iterator[psutil.Process]:
    """Processes that tests of this session started: they inherited its TMPDIR or the mark of one of its homes."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            told = [orphans.mark(process, name) for name in ("TMPDIR", orphans.MARK)]
            if not _ends_with_us(process) and any(each.startswith(roots) for each in told if each):
                yield process


def _ends_with_us(process: psutil.Process) -> bool:
    """Whether it is this process, or a helper process of multiprocessing that ends with it."""
    kept = process.ppid() == os.getpid() and any("from multiprocessing." in word for word in process.cmdline())
    return kept or process.pid == os.getpid()


def _words(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())[:200]
    return "gone meanwhile"


def _outside(roots: tuple[str, ...]) -> Iterator[Path]:
    for owner in data_dirs.OUTSIDE.glob(f"*/{data_dirs.OWNER}"):
        if owner.read_text().startswith(roots):
            yield owner.parent
