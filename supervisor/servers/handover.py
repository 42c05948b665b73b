"""Files that root prepares for the servers' user, which may have been compromised.

Root writes only in its own directories, where no other user can write. Files for another user are written first and
change owner last, by descriptor or without following links. In a directory of the other user root writes nothing: a
process of that user does.
"""

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

from interlock.workers.system.safe_remove import remove
from interlock.workers.system.safe_walk import plain_file
from interlock.workers.system.users import Account, spawn_options
from interlock.workflows.errors import InterlockError

LARGEST_READ = 4096


@contextlib.contextmanager
def build_directory(beside: Path) -> Iterator[Path]:
    """A temporary directory of ours beside a path, in which to build what is then renamed to the path.

    Others can pass through it but change nothing in it. It is deleted afterwards; one left by a killed process is
    deleted first.
    """
    for abandoned in beside.parent.glob(f"{beside.name}.new-*"):
        remove(abandoned)
    place = beside.with_name(f"{beside.name}.new-{secrets.token_hex(4)}")
    place.mkdir(mode=0o700)
    try:
        place.chmod(0o711)
        yield place
    finally:
        with contextlib.suppress(OSError):  # a process of the account still uses it; the next workshop deletes it
            remove(place)


def directory_for(account: Account | None, path: Path) -> Path:
    """Make an empty directory, 0700, owned by the account. Only we may write the parent directory of `path`."""
    path.mkdir(mode=0o700)
    if account is not None:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)
    return path


def file_for(account: Account | None, path: Path, text: str) -> Path:
    """Make a file that only the account may read. Only we may write the parent directory of `path`."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        if account is not None:
            os.fchown(handle, account.uid, account.gid)
    return path


def write_as(account: Account | None, path: Path, text: str) -> None:
    """Write a file in a directory of the account, with the account's rights, so that a planted link gains nothing.

    Raises `InterlockError` if it cannot be written.
    """
    done = subprocess.run(  # type: ignore[call-overload]
        ["/bin/sh", "-c", 'umask 077; exec cat > "$1"', "sh", str(path)],
        input=text.encode(),
        capture_output=True,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        check=False,
        **spawn_options(account),
    )
    if done.returncode != 0:
        raise InterlockError(f"{path} cannot be written: {done.stderr.decode(errors='replace').strip()[-300:]}")


def read_in(path: Path) -> str:
    """Read a short file in a directory of the account; a link, pipe or device is not read.

    Raises `OSError` if there is no such regular file.
    """
    handle = plain_file(path)
    try:
        return os.read(handle, LARGEST_READ).decode(errors="replace")
    finally:
        os.close(handle)
