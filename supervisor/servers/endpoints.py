"""`servers.json`: the addresses and passwords of all servers, kept across restarts."""

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from interlock.supervisor.home import Home, write_atomically
from interlock.supervisor.servers import ports
from interlock.workers.settings import Settings
from interlock.workflows.errors import InterlockError, OthersHome

FLOWER_USER = "interlock"
PARTS = ("postgres", "redis", "flower", "metrics")  # in the order in which their ports are chosen
Place = Callable[[str, str | None], Path]
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - recognised, not bound


@dataclass(frozen=True)
class Servers:
    """The content of `servers.json`.

    The URLs are those of this run. A port or directory is None until its embedded server was needed for the first time.
    Passwords are random, and are kept during a run with the user's own servers.
    """

    database_url: str = ""
    broker_url: str = ""
    flower_url: str = ""
    flower_user: str = FLOWER_USER
    flower_password: str = ""
    metrics_url: str = ""
    postgres_password: str = ""
    postgres_superuser_password: str = ""
    redis_password: str = ""
    postgres_port: int | None = None
    redis_port: int | None = None
    flower_port: int | None = None
    metrics_port: int | None = None
    postgres_data: str | None = None
    redis_data: str | None = None

    @property
    def superuser_url(self) -> str:
        """The embedded database's URL for its superuser: for backups and repairs, not for workers.

        A database from before the roles were separated has only one login, which is the superuser's.
        """
        if not self.postgres_superuser_password:
            return self.database_url
        owner = f"//interlock:{self.postgres_password}@"
        return self.database_url.replace(owner, f"//postgres:{self.postgres_superuser_password}@")


CONTENT = TypeAdapter(Servers)


def load(home: Home) -> Servers:
    """Read the file; an empty record if there is none. Raises `InterlockError` if it is unreadable."""
    try:
        return CONTENT.validate_json(home.servers.read_bytes())
    except FileNotFoundError:
        return Servers()
    except PermissionError as refused:
        raise OthersHome(home.servers) from refused
    except (OSError, ValidationError) as unreadable:
        message = unreadable.errors()[0]["msg"] if isinstance(unreadable, ValidationError) else unreadable
        raise InterlockError(  # without its cause, which would show passwords
            f"{home.servers} cannot be read ({message}). It holds the database's password: restore it."
        ) from None


def save(home: Home, servers: Servers) -> None:
    """Replace the file."""
    write_atomically(home.servers, json.dumps(asdict(servers), indent=2) + "\n")


def settle(home: Home, settings: Settings, place: Place, without: frozenset[str]) -> Servers:
    """Decide the addresses, passwords and data directories of this run.

    They are saved before any server is created: a database whose password was never saved could not be opened again.
    `place` returns a server's data directory, given its name and the recorded one, if any. Raises `PortTaken` if a
    configured port is in use.
    """
    found = load(home)
    servers = replace(
        found,
        flower_password=found.flower_password or secrets.token_hex(16),
        postgres_password=found.postgres_password or secrets.token_hex(16),
        redis_password=found.redis_password or secrets.token_hex(16),
    )
    if settings.database_url is None:
        servers = _embed_postgres(servers, settings, place)
    if settings.broker_url is None:
        servers = _embed_valkey(servers, settings, place)
    servers = replace(servers, flower_url="") if "flower" in without else _place_flower(servers, settings)
    servers = replace(servers, metrics_url="") if "metrics" in without else _place_metrics(servers, settings)
    servers = replace(
        servers,
        database_url=settings.database_url or servers.database_url,
        broker_url=settings.broker_url or servers.broker_url,
    )
    save(home, servers)
    return servers


def _embed_postgres(servers: Servers, settings: Settings, place: Place) -> Servers:
    port = _port("postgres", servers, settings)
    data = place("postgres", servers.postgres_data)
    fresh = "" if data.exists() else secrets.token_hex(16)
    return replace(
        servers,
        postgres_port=port,
        postgres_data=str(data),
        postgres_superuser_password=servers.postgres_superuser_password or fresh,
        database_url=f"postgresql://interlock:{servers.postgres_password}@{_reach(settings.host)}:{port}/interlock",
    )


def _embed_valkey(servers: Servers, settings: Settings, place: Place) -> Servers:
    port = _port("redis", servers, settings)
    return replace(
        servers,
        redis_port=port,
        redis_data=str(place("valkey", servers.redis_data)),
        broker_url=f"redis://:{servers.redis_password}@{_reach(settings.host)}:{port}/0",
    )


def _place_flower(servers: Servers, settings: Settings) -> Servers:
    port = _port("flower", servers, settings)
    return replace(servers, flower_port=port, flower_url=f"http://{_reach(settings.host)}:{port}")


def _place_metrics(servers: Servers, settings: Settings) -> Servers:
    port = _port("metrics", servers, settings)
    return replace(servers, metrics_port=port, metrics_url=f"http://{_reach(settings.host)}:{port}/metrics")


def _port(part: str, servers: Servers, settings: Settings) -> int:
    """The port of a part: `INTERLOCK_PART_PORT`, or that of last time, or a free one that no part before it has."""
    field = f"{part}_port"
    promised = {getattr(servers, f"{each}_port") for each in PARTS[: PARTS.index(part)]}
    explicit, kept = getattr(settings, field), getattr(servers, field)
    return ports.settle(f"INTERLOCK_{field.upper()}", explicit, kept, settings.host, promised=promised)


def _reach(host: str) -> str:
    """The address at which this machine reaches a server that listens on `host`, as written in a URL."""
    address = ANY_ADDRESS.get(host, host)
    return f"[{address}]" if ":" in address else address
