"""Deletes directories that others may have written to: no link is followed, and no tree is too deep."""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from interlock.workers.system.safe_walk import DIRECTORY


def remove(path: Path | str, within: int | None = None) -> None:
    """Delete a file, a link or a directory with its content, read-only or not; nothing there is no error.

    Every lookup is of a single name, so a directory that somebody meanwhile replaces by a link is not entered.
    Subdirectories are moved up before they are emptied: `shutil.rmtree` fails some 1,000 levels down.

    Args:
        path: what to delete.
        within: the descriptor of the directory that `path` is relative to.

    Raises:
        OSError: something may not be deleted, or another filesystem is mounted there.
    """
    if not _is_directory(path, within):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path, dir_fd=within)
        return
    with _entered(path, within) as top:
        while names := os.listdir(top):
            for name in names:
                _empty_into(top, name)
    os.rmdir(path, dir_fd=within)


def _empty_into(top: int, name: str) -> None:
    if not _is_directory(name, top):
        os.unlink(name, dir_fd=top)
        return
    with _entered(name, top) as inner:
        for each in os.listdir(inner):
            if _is_directory(each, inner):
                with _entered(each, inner):  # made writable: otherwise only root may move it
                    os.rename(each, f".{secrets.token_hex(8)}", src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(each, dir_fd=inner)
    os.rmdir(name, dir_fd=top)


def _is_directory(path: Path | str, within: int | None) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return stat.S_ISDIR(os.stat(path, dir_fd=within, follow_symlinks=False).st_mode)
    return False


@contextlib.contextmanager
def _entered(path: Path | str, within: int | None) -> Iterator[int]:
    handle = os.open(path, DIRECTORY, dir_fd=within)
    try:
        if not os.fstat(handle).st_mode & stat.S_IWUSR:  # it was made read-only against accidental changes
            os.fchmod(handle, 0o700)
        yield handle
    finally:
        os.close(handle)
