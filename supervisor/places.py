"""Where the servers' data and binaries lie: in the home, or where the user they run as can get to.

Root's home directory, `mktemp -d` and many a container's working directory are closed to other users. We do not
open other people's directories: data then goes to `/var/lib/interlock/<tag of the home>`, as do copies of binaries.
"""

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from supervisor.accounts import Account, obstacle
from supervisor.home import OWN_ENTRIES, Home
from workflows.errors import InterlockError

OUTSIDE = Path("/var/lib/interlock")
OWNER = "home"  # a file that says whose a directory there is: its name is a hash


class OutOfReach(InterlockError):
    """The servers' data is where their user cannot get to. Open the directory named, or move the data."""


def outside(home: Home) -> Path:
    """This home's directory outside of the home."""
    return OUTSIDE / home.tag


def data_directory(home: Home, name: str, recorded: str | None, account: Account | None) -> Path:
    """The data directory of server `name`: the one in use already, else a place `account` can reach.

    Raises `OutOfReach` when data exists that the account cannot get to: an empty one elsewhere would hide it.
    """
    for known in (recorded and Path(recorded), home.path / name):
        if known and known.is_dir():
            blocked = obstacle(known.parent, account)
            if blocked and account:
                raise OutOfReach(
                    f"the data in {known} exists, but user {account.name} may not pass {blocked}. "
                    f"Run `chmod o+x {blocked}`, or move the data and INTERLOCK_HOME to an open directory."
                )
            return known
    if obstacle(home.path, account) is None:
        return home.path / name
    data = _make_outside(home) / name
    if data.exists() and recorded is None:
        _set_aside(home, data)
    return data


def _make_outside(home: Home) -> Path:
    place = outside(home)
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / OWNER).write_text(f"{home.path}\n")
    except OSError as refused:
        raise OutOfReach(
            f"{home.path} is closed to the servers' user and {place} cannot be made ({refused.strerror}). "
            "Set INTERLOCK_HOME to a directory every user may pass."
        ) from refused
    for directory in (OUTSIDE, place):
        directory.chmod(0o755)
    return place


def _set_aside(home: Home, data: Path) -> None:
    """An earlier home of this path was deleted, and with it the passwords; the data is not ours to delete.

    Only this server's: what another one keeps beside it may be in use.
    """
    aside = OUTSIDE / f"{home.tag}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    aside.mkdir()
    (aside / OWNER).write_text(f"{home.path}\n")
    data.rename(aside / data.name)


def reachable_copy(
    home: Home, name: str, source: Path, account: Account | None, copy: Callable[[Path], object]
) -> Path:
    """`source`, a directory of binaries, or a copy of it where `account` may run it.

    `copy` fills an empty directory; the copy is root's, so that the servers cannot change their own programs.
    """
    if obstacle(source, account) is None:
        return source
    target = _make_outside(home) / "bin" / name
    if not target.exists():
        draft = target.with_name(f"{name}.{os.getpid()}")
        draft.mkdir(parents=True)
        copy(draft)
        for directory in (draft.parent, draft):
            directory.chmod(0o755)
        draft.rename(target)
    return target


def purge(home: Home) -> list[Path]:
    """Delete all data of this home, here and outside. Returns what was deleted; other files stay."""
    entries = [entry for name in OWN_ENTRIES for entry in home.path.glob(name)]
    doomed = [*entries, *OUTSIDE.glob(f"{home.tag}*")]
    for entry in doomed:
        if entry.is_dir() and not entry.is_symlink():
            for sealed in entry.glob("exports/export-*"):  # read-only, so that nothing changes them in passing
                sealed.chmod(0o750)
            shutil.rmtree(entry)
        else:
            entry.unlink()
    for directory in (OUTSIDE, home.path):
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()
    return doomed
