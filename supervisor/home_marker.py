"""The file that marks a directory as a home made by Interlock. Nothing is deleted in a directory without it."""

import os
import pwd
import shlex
import stat
from pathlib import Path

from interlock.workers.system.safe_walk import DIRECTORY
from interlock.workflows.errors import OthersHome, Refused

NAME = ".interlock-home"
TEXT = "A home of Interlock's, format 1: `interlock down --purge` deletes what Interlock made in this directory.\n"
OF_A_DISK = "lost+found"  # exists at the root of an empty filesystem


class NotAHome(Refused):
    """A directory is not a home made by Interlock. Nothing was changed: use another one, or adopt it."""


def claim(directory: Path, *, adopt: bool = False) -> None:
    """Mark `directory` as a home, if it is empty or is to be adopted. Does nothing if it is already marked.

    Raises:
        NotAHome: the directory is not empty and has no marker; or another user owns it, who could replace any file
            that we write there with a link.
        OthersHome: another user owns the marker.
    """
    handle = os.open(directory, DIRECTORY)
    try:
        if (owner := os.fstat(handle).st_uid) not in {0, os.geteuid()}:
            mine = pwd.getpwuid(os.geteuid()).pw_name
            raise NotAHome(
                f"{directory} belongs to another user ({owner}), who could replace whatever is written there: "
                f"`{shlex.join(['chown', mine, '--', str(directory)])}`, or name another directory with INTERLOCK_HOME"
            )
        there = {*os.listdir(handle)} - {OF_A_DISK}
        if there and not adopt and NAME not in there:
            raise NotAHome(
                f"{directory} is not empty, and Interlock did not make it: it has no {NAME}. Name an empty directory "
                "with INTERLOCK_HOME; if it is the home of an older Interlock, run `interlock up --adopt`"
            )
        if NAME not in there:
            _write(handle)
        require(handle, directory)
    finally:
        os.close(handle)


def require(handle: int, directory: Path) -> None:
    """Raise `NotAHome` or `OthersHome` unless the directory opened as `handle` is this user's home."""
    try:
        found = os.stat(NAME, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        found = None
    if found is None or not stat.S_ISREG(found.st_mode):
        raise NotAHome(
            f"{directory} has no {NAME}, so Interlock did not make it, and nothing was deleted. If it is "
            "the home of an older Interlock, `interlock up --adopt` marks it as a home"
        )
    if found.st_uid != os.geteuid():
        raise OthersHome(directory / NAME)


def _write(handle: int) -> None:
    try:
        file = os.open(NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=handle)
    except FileExistsError:  # another `up` has just created it
        return
    with os.fdopen(file, "w") as marker:
        marker.write(TEXT)
