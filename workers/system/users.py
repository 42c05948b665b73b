"""The users that the servers, and other people's commands, run as when root starts us.

Each is looked up. Only a name that is a setting's default is created if missing, so a typing error creates no user.
"""

import contextlib
import fcntl
import os
import pwd
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from interlock.workers.settings import Settings
from interlock.workflows.errors import BadInput

SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
MAKING = ("--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", "--user-group")
LOCKED = {1, 10}  # useradd(8): /etc/passwd or /etc/group could not be updated, for example because another useradd runs
PATIENCE_SECONDS = 20.0
LOCK = "/etc/.pwd.lock"


@dataclass(frozen=True)
class Account:
    """An unprivileged user of this machine."""

    name: str
    uid: int
    gid: int


def os_user() -> str:
    """The name of the user that this process runs as; `uid-N` if it has none, as in some containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"


def server_account(settings: Settings) -> Account | None:
    """The user that PostgreSQL and Valkey run as; None if we are not root, and they run as our own user.

    Raises `BadInput` if that user is missing, or is root.
    """
    return _account(settings, "run_as")


def commands_account(settings: Settings) -> Account | None:
    """The user that commands of tasks, gates and effects run as; None if we are not root, and they run as our own user.

    Raises `BadInput` if that user is missing, is root, or is the servers' user, who can read the whole database.
    """
    account = _account(settings, "commands_run_as")
    servers = _existing_account(settings.run_as)
    if account is not None and servers is not None and account.uid == servers.uid:
        raise BadInput(
            f"INTERLOCK_COMMANDS_RUN_AS: {account.name!r} is the user PostgreSQL and Valkey run as; "
            "commands run as that user could read and change the database. Name another user"
        )
    return account


def spawn_options(account: Account | None) -> dict[str, object]:
    """The options of `subprocess.Popen` to run as `account`; none without an account."""
    if account is None:
        return {}
    return {"user": account.uid, "group": account.gid, "extra_groups": []}


def obstacle(path: Path, account: Account | None) -> Path | None:
    """The outermost directory on the way into `path` that `account` may not enter; None if it can get there.

    Only mode bits are checked: an ACL that would let the user in is missed, at the cost of no more than a copy.
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


def _account(settings: Settings, field: str) -> Account | None:
    if os.geteuid() != 0:
        return None
    name, variable = str(getattr(settings, field)), f"INTERLOCK_{field.upper()}"
    account = _existing_account(name)
    if account is None and name == Settings.model_fields[field].default:
        account = create_account(name, variable)
    if account is None:
        raise BadInput(f"{variable}: this machine has no user {name!r}. Make it with `{_line(name)}`")
    if account.uid == 0 or account.gid == 0:
        raise BadInput(f"{variable}: {name!r} has root's rights; name an unprivileged user")
    return account


def _existing_account(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def create_account(name: str, variable: str) -> Account:
    """Create a system user without home, shell or password. If several processes do so at once, all find the same user.

    Raises `BadInput`, which names the setting's `variable`, if useradd is missing or refuses.
    """
    program, until = shutil.which("useradd", path=SYSTEM_PATH), time.monotonic() + PATIENCE_SECONDS
    if program is None:
        raise BadInput(
            f"{variable}: this machine has no user {name!r}, and no useradd to make it. "
            f"Make one without rights (elsewhere: `{_line(name)}`), or name one that exists"
        )
    with _alone():
        while not (account := _existing_account(name)):
            done = subprocess.run([program, *MAKING, "--", name], capture_output=True, text=True, check=False)
            if done.returncode not in {0, *LOCKED} or time.monotonic() > until:
                output = (done.stderr or done.stdout).strip() or f"it ended with code {done.returncode}"
                raise BadInput(f"{variable}: user {name!r} could not be made: {output}. Name a user that exists")
            time.sleep(0.2 if done.returncode else 0)
    return account


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """A lock against a second useradd at the same time, which would replace the first's user, under another id."""
    with contextlib.ExitStack() as opened:
        with contextlib.suppress(OSError):  # /etc is read-only: useradd will report that
            # flock(2), because useradd's own lock of this file (lockf) does not conflict with it.
            handle = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            opened.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _line(name: str) -> str:
    return f"useradd {' '.join(MAKING)} {name}"
