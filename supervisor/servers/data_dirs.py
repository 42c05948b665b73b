"""The directories of the servers' data and binaries: in the home, or where the servers' user can reach them.

Root's home directory, `mktemp -d` and the working directories of many containers are closed to other users. We do not
open such directories: data and copies of binaries then go to `/var/lib/interlock/<tag of the home>`.
"""

import os
import pwd
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from interlock.supervisor.home import PASSABLE, Home, tighten
from interlock.workers.settings import OUTSIDE as OUTSIDE  # noqa: PLC0414 - others name it by this module
from interlock.workers.system.users import Account, obstacle
from interlock.workflows.errors import InterlockError

OWNER = "home"  # a file with the path of the home that a directory belongs to, since the directory's name is a hash


class OutOfReach(InterlockError):
    """The servers' user cannot reach the data. Open the directory named in the message, or move the data."""


def outside(home: Home) -> Path:
    """The directory outside the home that belongs to this home."""
    return OUTSIDE / home.tag


def data_directory(home: Home, name: str, recorded: str | None, account: Account | None) -> Path:
    """The data directory of server `name`: the existing one, or else a new one that `account` can reach.

    Raises `OutOfReach` if data exist that the account cannot reach or does not own: an empty directory elsewhere would
    hide them.
    """
    for known in (recorded and Path(recorded), home.path / name):
        if known and known.is_dir():
            blocked = obstacle(known.parent, account)
            if blocked and account:
                raise OutOfReach(
                    f"the data in {known} exists, but user {account.name} cannot enter {blocked}. "
                    f"Run `chmod o+x {blocked}`, or move the data and INTERLOCK_HOME to an open directory."
                )
            _require_owned(known, account)
            return known
    if obstacle(home.path, account) is None:
        return home.path / name
    data = _make_outside(home) / name
    if data.exists() and recorded is None:
        _set_aside(home, data)
    return data


def require_safe(home: Home, *accounts: Account | None) -> None:
    """Refuse a home if one of the accounts, or anybody, could replace it or a directory above it.

    Raises `OutOfReach`. Only root has accounts to switch to; other owners of the directories above are trusted.
    """
    for account in filter(None, accounts):
        for above in home.path.parents:
            found = above.stat()
            owned = found.st_uid == account.uid or (found.st_gid == account.gid and found.st_mode & stat.S_IWGRP)
            if owned or (found.st_mode & (stat.S_IWOTH | stat.S_ISVTX)) == stat.S_IWOTH:
                raise OutOfReach(
                    f"user {account.name} can write to {above}, and could replace "
                    f"{home.path}. Choose another INTERLOCK_HOME, or fix it: `chown root: {above}; chmod go-w {above}`"
                )


def _require_owned(data: Path, account: Account | None) -> None:
    """PostgreSQL starts only with data that its user owns. The operator must decide to change the owner."""
    owner = data.stat().st_uid
    if account and owner != account.uid:
        raise OutOfReach(
            f"the data in {data} belongs to user {_name(owner)}, but the servers run as {account.name}. Set "
            f"INTERLOCK_RUN_AS={_name(owner)} to go on as before, or stop everything and change the owner: "
            f"`chown -R {account.name}: {data}`"
        )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _make_outside(home: Home) -> Path:
    place = outside(home)
    try:
        place.mkdir(parents=True, exist_ok=True)
        _write_owner(place, home)
    except OSError as refused:
        raise OutOfReach(
            f"{home.path} is closed to the servers' user and {place} cannot be made ({refused.strerror}). "
            "Set INTERLOCK_HOME to a directory that every user can enter."
        ) from refused
    tighten(OUTSIDE, 0o755)  # shared by all users' homes; each has a directory in it, named by a hash
    tighten(place, PASSABLE)
    return place


def _write_owner(place: Path, home: Home) -> None:
    (place / OWNER).write_text(f"{home.path}\n")
    (place / OWNER).chmod(0o644)


def _set_aside(home: Home, data: Path) -> None:
    """Rename the data of an earlier home of this path, which was deleted together with its passwords.

    The data are kept, because they are not ours to delete. Only this server's data are moved: another server's data
    beside them may be in use.
    """
    aside = OUTSIDE / f"{home.tag}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    aside.mkdir()
    tighten(aside, PASSABLE)
    _write_owner(aside, home)
    data.rename(aside / data.name)


def reachable_copy(
    home: Home, name: str, source: Path, account: Account | None, copy: Callable[[Path], object]
) -> Path:
    """`source`, a directory of binaries, or a copy of it that `account` can run.

    `copy` fills an empty directory. Root owns the copy, so that the servers cannot change their own programs.
    """
    if obstacle(source, account) is None:
        return source
    target = _make_outside(home) / "bin" / name
    if not target.exists():
        draft = target.with_name(f"{name}.{os.getpid()}")
        draft.mkdir(parents=True)
        copy(draft)
        tighten(draft.parent, PASSABLE)
        for each in (draft, *draft.rglob("*")):  # runnable by every user, regardless of our umask
            if not each.is_symlink():
                each.chmod(0o755 if each.is_dir() else (each.stat().st_mode | 0o444) & 0o755)
        draft.rename(target)
    return target


def of_home(home: Home) -> list[Path]:
    """Every outside directory of this home, by the path in its `home` file: its name, a hash, is no proof."""
    return [owner.parent for owner in OUTSIDE.glob(f"{home.tag}*/{OWNER}") if _is_owned_by(owner, home)]


def _is_owned_by(owner: Path, home: Home) -> bool:
    return owner.stat().st_uid == os.geteuid() and owner.read_text() == f"{home.path}\n"
