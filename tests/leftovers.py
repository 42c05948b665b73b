"""What a session of tests makes lies in one directory of its own, and nothing of it is left, however the session ends.

Told by what processes and directories carry, not by what was there before: other sessions may run meanwhile.
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

from supervisor import places, strays

LEFT = pytest.StashKey[list[str]]()
ROOTS = pytest.StashKey[tuple[str, ...]]()
LAST = -1000  # after multiprocessing deleted its own directory in ours
GRACE_SECONDS = 15.0  # processes of xdist, and fork servers, end a moment after the last test


def begin(config: pytest.Config) -> None:
    """Have everything temporary of this session, its processes' too, in a directory that goes with it.

    pytest's own files are among it: it keeps every session's in one place for each user, and a session that ends
    removes what it takes for left over there, also from under one that still runs.
    """
    own = tempfile.mkdtemp(prefix="interlock-tests-")
    os.chmod(own, 0o755)  # noqa: S103 - servers of another user work in it
    os.environ["TMPDIR"] = tempfile.tempdir = own
    root = own if config.option.basetemp else os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", own)
    config.stash[ROOTS] = (own, str(config.option.basetemp or root))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: cleanups are run
    Finalize(None, shutil.rmtree, (own,), {"ignore_errors": True}, LAST)


def finish(session: pytest.Session) -> None:
    """End and delete what is left. A session that was not interrupted fails by it."""
    roots = session.config.stash[ROOTS]
    found = list(_processes(roots))
    _, staying = psutil.wait_procs(found, timeout=GRACE_SECONDS)
    left = [f"process {each.pid}: {_words(each)}" for each in staying]
    strays.end(staying)
    for place in _outside(roots):
        left.append(f"directory {place}, of {(place / places.OWNER).read_text().strip()}")
        shutil.rmtree(place)
    session.config.stash[LEFT] = left
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def report(config: pytest.Config, write: Callable[[str], None]) -> None:
    """Say what was left."""
    if left := config.stash.get(LEFT, []):
        write("left behind by tests, and now gone:\n" + "".join(f"  {each}\n" for each in left))


def _processes(roots: tuple[str, ...]) -> Iterator[psutil.Process]:
    """Those that a test of this session started: they inherit where temporary files go, or whose servers they are."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            told = process.environ()
            if not _ends_with_us(process) and any(
                told.get(name, "").startswith(roots) for name in ("TMPDIR", strays.MARK)
            ):
                yield process


def _ends_with_us(process: psutil.Process) -> bool:
    """This process itself, and what multiprocessing keeps for as long as it lives."""
    kept = process.ppid() == os.getpid() and any("from multiprocessing." in word for word in process.cmdline())
    return kept or process.pid == os.getpid()


def _words(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())[:200]
    return "gone meanwhile"


def _outside(roots: tuple[str, ...]) -> Iterator[Path]:
    for owner in places.OUTSIDE.glob(f"*/{places.OWNER}"):
        if owner.read_text().startswith(roots):
            yield owner.parent
