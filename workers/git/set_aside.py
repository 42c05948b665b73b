"""Sets files of a worktree aside for a while, and puts them back, also after a crash at any point."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from interlock.workers.git import inside, state_files
from interlock.workers.system.users import Account

RECORD, ASIDE, NEEDED = "interlock-aside.json", "aside", "interlock-aside.lock"


def set_aside(top: Path, own: Path, gone: Sequence[str], coming: Sequence[str]) -> None:
    """Move files, links or directories out of a worktree.

    Args:
        top: the worktree.
        own: our directory beside it.
        gone: what to move out; none contains another.
        coming: files to be created in the worktree meanwhile, and removed when the others are put back.
    """
    (own / ASIDE).mkdir(exist_ok=True)
    numbers = {path: str(number) for number, path in enumerate(gone)}
    state_files.write(own / RECORD, {"aside": numbers, "put": list(coming)})
    for path, number in numbers.items():
        at = PurePosixPath(path)
        with inside.folder(top, str(at.parent)) as where, inside.folder(own, ASIDE) as kept:
            os.rename(at.name, number, src_dir_fd=where, dst_dir_fd=kept)


@contextlib.contextmanager
def needed(own: Path) -> Iterator[Callable[[], bool]]:
    """Declare that a state of the worktree is needed, until the block or this process ends.

    Yields a function that returns whether nobody else needs one. Call it, and change the state, only under the
    worktree's lock.
    """
    handle = os.open(own / NEEDED, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)

        def alone() -> bool:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                fcntl.flock(handle, fcntl.LOCK_SH)  # a failed change of lock mode may have released the lock
                return False
            fcntl.flock(handle, fcntl.LOCK_SH)
            return True

        yield alone
    finally:
        os.close(handle)


def put_back(top: Path, own: Path, owner: Account | None) -> None:
    """Undo `set_aside`, unless somebody still needs that state; does nothing if nothing is set aside."""
    if not (own / RECORD).exists():
        return
    with needed(own) as alone:
        if not alone() or (record := state_files.read(own / RECORD)) is None:
            return
        for path in record["put"]:
            inside.remove(top, path)
        for path, number in record["aside"].items():
            if os.path.lexists(own / ASIDE / number):  # otherwise it was not moved yet, or is back
                inside.remove(top, path)
                at = PurePosixPath(path)
                place = inside.folder(top, str(at.parent), make=True, owner=owner)
                with inside.folder(own, ASIDE) as kept, place as where:
                    os.rename(number, at.name, src_dir_fd=kept, dst_dir_fd=where)
        (own / RECORD).unlink()
