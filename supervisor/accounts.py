"""Who the servers run as. PostgreSQL refuses root, so when root starts us they run as `settings.run_as`."""

import os
import pwd
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from workflows.errors import BadInput


@dataclass(frozen=True)
class Account:
    """An unprivileged user of this machine."""

    name: str
    uid: int
    gid: int


def server_account(run_as: str) -> Account | None:
    """The user to drop to, or None where we are nobody special ourselves.

    Raises `BadInput` when root would have to run the servers as root, or as a user who does not exist.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(run_as)
    except KeyError:
        raise BadInput(f"INTERLOCK_RUN_AS: this machine has no user {run_as!r}") from None
    if entry.pw_uid == 0:
        raise BadInput("INTERLOCK_RUN_AS: PostgreSQL refuses to run as root; name an unprivileged user")
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def obstacle(path: Path, account: Account | None) -> Path | None:
    """The outermost directory on the way into `path` that `account` may not pass; None if it gets there.

    By mode bits alone: an ACL that lets the user in is not seen, and costs no more than a copy.
    """
    if account is None:
        return None
    existing = [place for place in (*reversed(path.parents), path) if place.is_dir()]
    return next((place for place in existing if not _may_enter(place, account)), None)


def _may_enter(directory: Path, account: Account) -> bool:
    found = directory.stat()
    if found.st_uid == account.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == account.gid:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)


def give(path: Path, account: Account | None) -> None:
    """Make `path` the account's own, if there is one to drop to."""
    if account is not None:
        shutil.chown(path, account.uid, account.gid)


def spawn_options(account: Account | None) -> dict[str, object]:
    """What `subprocess.Popen` needs to run as `account`."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}
