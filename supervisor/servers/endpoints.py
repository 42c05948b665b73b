"""`servers.json`: the addresses and passwords of all servers, kept across restarts."""

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from interlock.db.schema import AUDITOR, CLIENT, ENGINE, OWNER, ROLES
from interlock.supervisor.home import Home, write_atomically
from interlock.supervisor.servers import ports
from interlock.workers.settings import Settings
from interlock.workflows.errors import InterlockError, OthersHome

FLOWER_USER = DATABASE = "interlock"
SUPERUSER = "postgres"  # of the embedded PostgreSQL, for backups and repairs; its password is in no part's environment
PARTS = ("postgres", "redis", "flower", "metrics", "api")  # in the order in which their ports are chosen
Place = Callable[[str, str | None], Path]
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - recognised, not bound


@dataclass(frozen=True)
class Servers:
    """The content of `servers.json`.

    The URLs are those of this run. A port or directory is None until its embedded server was needed for the first time.
    Passwords are random, and are kept during a run with the user's own servers.
    """

    database_url: str = ""  # for the engine's login; the next three are the embedded PostgreSQL's for the other roles
    owner_url: str = ""
    client_url: str = ""
    auditor_url: str = ""
    postgres_passwords: Mapping[str, str] = field(default_factory=dict)  # by login
    postgres_port: int | None = None
    postgres_data: str | None = None
    broker_url: str = ""
    redis_password: str = ""
    redis_port: int | None = None
    redis_data: str | None = None
    flower_url: str = ""
    flower_user: str = FLOWER_USER
    flower_password: str = ""
    flower_port: int | None = None
    metrics_url: str = ""
    metrics_port: int | None = None
    api_url: str = ""
    api_port: int | None = None

    def url_for(self, login: str) -> str:
        """The embedded database's URL for one of its logins (`ROLES`, `SUPERUSER`)."""
        _, _, place = self.database_url.removeprefix("postgresql://").rpartition("@")
        return f"postgresql://{login}:{self.postgres_passwords[login]}@{place}"

    @property
    def superuser_url(self) -> str:
        """The embedded database's URL for its superuser: for backups and repairs, not for workers."""
        return self.url_for(SUPERUSER)


CONTENT = TypeAdapter(Servers)


def new_passwords() -> Mapping[str, str]:
    """A random password for each login of the embedded PostgreSQL. In it, the schema's roles are logins themselves."""
    return {login: secrets.token_hex(16) for login in (*ROLES, SUPERUSER)}


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
        redis_password=found.redis_password or secrets.token_hex(16),
    )
    if settings.database_url is None:
        servers = _embed_postgres(servers, settings, place)
    if settings.broker_url is None:
        servers = _embed_valkey(servers, settings, place)
    servers = replace(servers, flower_url="") if "flower" in without else _place_flower(servers, settings)
    servers = replace(servers, metrics_url="") if "metrics" in without else _place_metrics(servers, settings)
    servers = replace(servers, api_url="") if "api" in without else _place_api(servers, settings)
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
    passwords = servers.postgres_passwords or new_passwords()
    known = replace(
        servers,
        postgres_port=port,
        postgres_data=str(data),
        postgres_passwords=passwords,
        database_url=f"postgresql://{_reach(settings.host)}:{port}/{DATABASE}",
    )
    return replace(
        known,
        database_url=known.url_for(ENGINE),
        owner_url=known.url_for(OWNER),
        client_url=known.url_for(CLIENT),
        auditor_url=known.url_for(AUDITOR),
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


def _place_api(servers: Servers, settings: Settings) -> Servers:
    port = _port("api", servers, settings, settings.api_host)
    scheme = "http" if settings.api_tls_certificate is None else "https"
    return replace(servers, api_port=port, api_url=f"{scheme}://{_reach(settings.api_host)}:{port}")


def _port(part: str, servers: Servers, settings: Settings, host: str = "") -> int:
    """The port of a part: `INTERLOCK_PART_PORT`, or that of last time, or a free one that no part before it has."""
    field = f"{part}_port"
    promised = {getattr(servers, f"{each}_port") for each in PARTS[: PARTS.index(part)]}
    explicit, kept = getattr(settings, field), getattr(servers, field)
    return ports.settle(f"INTERLOCK_{field.upper()}", explicit, kept, host or settings.host, promised=promised)


def _reach(host: str) -> str:
    """The address at which this machine reaches a server that listens on `host`, as written in a URL."""
    address = ANY_ADDRESS.get(host, host)
    return f"[{address}]" if ":" in address else address
