"""Delete a home: only what Interlock created, in directories that it created; links are not followed."""

import os
from fnmatch import fnmatchcase
from pathlib import Path

from interlock.supervisor import home_marker
from interlock.supervisor.home import OWN_ENTRIES, Home
from interlock.supervisor.servers import data_dirs
from interlock.workers.system.safe_remove import remove
from interlock.workers.system.safe_walk import DIRECTORY


def require_own(home: Home) -> None:
    """Raise `NotAHome` or `OthersHome` if the directory is not empty and not this user's home."""
    _of_home(home, delete=False)


def purge(home: Home) -> list[Path]:
    """Delete all data of this home, inside and outside; returns what was deleted. The marker stays if other files do.

    Raises:
        NotAHome: Interlock did not make that directory; nothing was deleted.
        OthersHome: it is another user's home; nothing was deleted.
    """
    deleted = _of_home(home, delete=True)
    for place in data_dirs.of_home(home):
        remove(place)
        deleted.append(place)
    for directory in (data_dirs.OUTSIDE, home.path):
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()
    return deleted


def _of_home(home: Home, *, delete: bool) -> list[Path]:
    try:
        handle = os.open(home.path, DIRECTORY)
    except FileNotFoundError:
        return []
    try:
        names = sorted({*os.listdir(handle)} - {home_marker.OF_A_DISK})
        if names:
            home_marker.require(handle, home.path)
        doomed = [name for name in names if any(fnmatchcase(name, pattern) for pattern in OWN_ENTRIES)]
        for name in doomed if delete else ():
            remove(name, within=handle)
        if delete and os.listdir(handle) == [home_marker.NAME]:
            os.unlink(home_marker.NAME, dir_fd=handle)
    finally:
        os.close(handle)
    return [home.path / name for name in doomed]
