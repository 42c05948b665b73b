"""`servers.json`: where everything listens and with which passwords, kept across restarts."""

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from supervisor import ports
from supervisor.home import Home, write_atomically
from workers.settings import Settings
from workflows.errors import InterlockError, OthersHome

FLOWER_USER = "interlock"
Place = Callable[[str, str | None], Path]
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - recognised, not bound


@dataclass(frozen=True)
class Servers:
    """The content of `servers.json`.

    The URLs are what this run uses; a port or directory is None until the embedded server it belongs to
    was needed once. Passwords are random and survive a run with the user's own servers.
    """

    database_url: str = ""
    broker_url: str = ""
    flower_url: str = ""
    flower_user: str = FLOWER_USER
    flower_password: str = ""
    metrics_url: str = ""
    postgres_password: str = ""
    redis_password: str = ""
    postgres_port: int | None = None
    redis_port: int | None = None
    flower_port: int | None = None
    metrics_port: int | None = None
    postgres_data: str | None = None
    redis_data: str | None = None


def load(home: Home) -> Servers:
    """What the file says; an empty record where there is none. Raises `InterlockError` when unreadable."""
    try:
        content = json.loads(home.servers.read_text())
        known = {field.name for field in fields(Servers)}
        return Servers(**{key: value for key, value in content.items() if key in known})
    except FileNotFoundError:
        return Servers()
    except PermissionError as refused:
        raise OthersHome(home.servers) from refused
    except (OSError, ValueError, AttributeError) as unreadable:
        raise InterlockError(
            f"{home.servers} cannot be read ({unreadable}). It holds the database's password: restore it."
        ) from unreadable


def save(home: Home, servers: Servers) -> None:
    """Replace the file."""
    write_atomically(home.servers, json.dumps(asdict(servers), indent=2) + "\n")


def settle(home: Home, settings: Settings, place: Place, without: frozenset[str]) -> Servers:
    """Decide addresses, passwords and data directories of this run, and save them before any server is made:
    a database whose password was never written could not be opened again.

    `place` gives a server's data directory from its name and the one recorded, if any. Raises `PortTaken` on
    an explicit port in use.
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
    port = ports.settle("INTERLOCK_POSTGRES_PORT", settings.postgres_port, servers.postgres_port, settings.host)
    return replace(
        servers,
        postgres_port=port,
        postgres_data=str(place("postgres", servers.postgres_data)),
        database_url=f"postgresql://interlock:{servers.postgres_password}@{_reach(settings.host)}:{port}/interlock",
    )


def _embed_valkey(servers: Servers, settings: Settings, place: Place) -> Servers:
    port = ports.settle(
        "INTERLOCK_REDIS_PORT",
        settings.redis_port,
        servers.redis_port,
        settings.host,
        promised={servers.postgres_port},
    )
    return replace(
        servers,
        redis_port=port,
        redis_data=str(place("valkey", servers.redis_data)),
        broker_url=f"redis://:{servers.redis_password}@{_reach(settings.host)}:{port}/0",
    )


def _place_flower(servers: Servers, settings: Settings) -> Servers:
    port = ports.settle(
        "INTERLOCK_FLOWER_PORT",
        settings.flower_port,
        servers.flower_port,
        settings.host,
        promised={servers.postgres_port, servers.redis_port},
    )
    return replace(servers, flower_port=port, flower_url=f"http://{_reach(settings.host)}:{port}")


def _place_metrics(servers: Servers, settings: Settings) -> Servers:
    port = ports.settle(
        "INTERLOCK_METRICS_PORT",
        settings.metrics_port,
        servers.metrics_port,
        settings.host,
        promised={servers.postgres_port, servers.redis_port, servers.flower_port},
    )
    return replace(servers, metrics_port=port, metrics_url=f"http://{_reach(settings.host)}:{port}/metrics")


def _reach(host: str) -> str:
    """The address under which this machine reaches a server that listens on `host`, as a URL writes it."""
    address = ANY_ADDRESS.get(host, host)
    return f"[{address}]" if ":" in address else address
