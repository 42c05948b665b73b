"""Access to files in a directory that somebody else owns or writes to: no symbolic link on the path is ever followed.

Each step starts at the directory before (`openat`, `O_NOFOLLOW`), so an entry that is swapped meanwhile leads nowhere
else.
"""

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from interlock.workers.system import safe_remove, safe_walk
from interlock.workers.system.safe_walk import DIRECTORY, plain_file
from interlock.workers.system.users import Account

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def folder(top: Path, path: str, *, make: bool = False, owner: Account | None = None) -> Iterator[int]:
    """A descriptor of a directory below `top`, closed afterwards.

    Args:
        top: in a directory that is ours alone.
        path: relative, with `/`; empty for `top` itself.
        make: create missing directories.
        owner: the owner of created directories.

    Raises:
        OSError: it is missing, or a link or a file is in the way.
    """
    here = os.open(top, DIRECTORY)
    try:
        for part in PurePosixPath(path).parts:
            if make:
                _made(part, here, owner)
            below = os.open(part, DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _made(name: str, where: int, owner: Account | None) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=where)
    except FileExistsError:
        return
    if owner:
        os.chown(name, owner.uid, owner.gid, dir_fd=where, follow_symlinks=False)


def read(top: Path, path: str, *, limit_bytes: int) -> bytes | None:
    """The content of a regular file, up to a limit; None if there is no regular file."""
    try:
        with opened(top, path) as file:
            return os.read(file, min(limit_bytes, os.fstat(file).st_size))
    except OSError:
        return None


@contextlib.contextmanager
def opened(top: Path, path: str) -> Iterator[int]:
    """A descriptor of a regular file, to read. Raises `OSError` if there is none."""
    at = PurePosixPath(path)
    with folder(top, str(at.parent)) as where:
        file = plain_file(at.name, where)
        try:
            yield file
        finally:
            os.close(file)


def write(top: Path, path: str, content: bytes, *, mode: int = 0o644, owner: Account | None = None) -> None:
    """Write a whole file in one step; a file or link of that name is replaced. Raises `OSError`."""
    at = PurePosixPath(path)
    draft = f".{at.name[:100]}.{secrets.token_hex(4)}"
    with folder(top, str(at.parent), make=True, owner=owner) as where:
        file = os.open(draft, NEW, 0o600, dir_fd=where)
        try:
            with open(file, "wb", closefd=False) as out:
                out.write(content)
            os.fchmod(file, mode)
            if owner:
                os.fchown(file, owner.uid, owner.gid)
        finally:
            os.close(file)
        os.rename(draft, at.name, src_dir_fd=where, dst_dir_fd=where)


def link(top: Path, path: str, target: bytes) -> None:
    """Create a symbolic link where nothing exists. Raises `OSError`."""
    at = PurePosixPath(path)
    with folder(top, str(at.parent), make=True) as where:
        os.symlink(target, os.fsencode(at.name), dir_fd=where)


def remove(top: Path, path: str) -> None:
    """Remove a file, a link, or a directory with its content; nothing there is no error."""
    at = PurePosixPath(path)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), folder(top, str(at.parent)) as where:
        safe_remove.remove(at.name, where)


def kind(top: Path, path: str) -> int | None:
    """The type and mode of an entry, of a link its own (`os.lstat`); None if there is none, or a link is on the
    way."""
    at = PurePosixPath(path)
    try:
        with folder(top, str(at.parent)) as where:
            return os.stat(at.name, dir_fd=where, follow_symlinks=False).st_mode
    except OSError:
        return None


def remove_tree(top: Path) -> None:
    """Remove whatever is there, whoever owns it, however deep it is and whatever modes its directories have.

    Raises `OSError` if it cannot be removed.
    """
    for last in (False, False, True):  # again for files written meanwhile, and for directories that only root may enter
        try:
            safe_remove.remove(top)  # `rm -rf` takes minutes for 100,000 levels
            return
        except OSError as error:
            if last:
                raise OSError(error.errno, f"cannot be removed: {error.strerror}", str(top)) from None
            if isinstance(error, PermissionError):
                subprocess.run(["chmod", "-R", "u+rwX", "--", top], capture_output=True, check=False)


def remove_pipes(top: Path) -> None:
    """Remove the named pipes and devices of a tree, so that no program that opens one blocks."""
    with contextlib.suppress(OSError), folder(top, "") as where:
        safe_walk.remove_pipes(where)
