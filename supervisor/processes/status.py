"""The result of `interlock status`: the actual state of the parts, not the recorded one."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from pydantic import BaseModel, ValidationError

from interlock.db.schema import ENGINE
from interlock.supervisor.home import Home, home_of
from interlock.supervisor.processes import lock
from interlock.supervisor.processes.process import PartReport
from interlock.supervisor.processes.specs import answers
from interlock.supervisor.servers import endpoints, postgres, valkey
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.settings import Settings
from interlock.workflows.output.urls import shown_url

# psutil derives start times from the boot time, which changes slightly when the clock is set.
CREATE_TIME_TOLERANCE_SECONDS = 2.0
SHOWN = ("name", "state", "pid", "restarts", "since", "detail")


@dataclass(frozen=True)
class Status:
    """The state of one home. `parts` are dicts with the keys `SHOWN`; URLs are None if never known."""

    running: bool
    home: Path
    parts: list[dict[str, Any]]
    database_url: str | None
    client_url: str | None
    broker_url: str | None
    redis_url: str | None
    flower_url: str | None
    metrics_url: str | None
    api_url: str | None

    @property
    def ready(self) -> bool:
        """Whether every part runs and answers."""
        return self.running and bool(self.parts) and all(part["state"] == "ready" for part in self.parts)

    def as_json(self) -> dict[str, Any]:
        """The output of `status --json`."""
        return {**vars(self), "home": str(self.home)}


def status(settings: Settings) -> Status:
    """Check every part of this home: connect to PostgreSQL, ping Valkey, query Flower, the exporter and the API over
    HTTP, and look for the processes of the others."""
    home = home_of(settings)
    known = endpoints.load(home)
    running = lock.holder(home) is not None
    database_url = settings.database_url or known.database_url or None
    broker_url = settings.broker_url or known.broker_url or None
    redis_url = settings.redis_url or (broker_url if (broker_url or "").startswith("redis") else None)
    parts = [_seen(part, known) if running else _absent(part) for part in recorded(home)]
    return Status(
        running,
        home.path,
        parts,
        _sayable(database_url, known.postgres_passwords.get(ENGINE, "")),
        known.client_url or None if settings.database_url is None else None,
        _sayable(broker_url, known.redis_password),
        _sayable(redis_url, known.redis_password),
        known.flower_url or None,
        known.metrics_url or None,
        known.api_url or None,
    )


class Document(BaseModel):
    """The content of `processes.json`."""

    parts: list[PartReport]


def _sayable(url: str | None, embedded_password: str) -> str | None:
    """An embedded server's whole URL, password included, to connect with; a user's own server without credentials."""
    if url is None or (embedded_password and embedded_password in url):
        return url
    return shown_url(url)


def recorded(home: Home) -> list[dict[str, Any]]:
    """The parts as the supervisor last recorded them; none if it never ran or the file is invalid."""
    try:
        return [asdict(part) for part in Document.model_validate_json(home.processes.read_bytes()).parts]
    except (OSError, ValidationError):
        return []


def _absent(part: dict[str, Any]) -> dict[str, Any]:
    return {**{key: part[key] for key in SHOWN}, "state": "stopped", "pid": None, "detail": ""}


def _seen(part: dict[str, Any], known: Servers) -> dict[str, Any]:
    shown = {key: part[key] for key in SHOWN}
    if part["state"] != "ready":
        return shown
    missing = _missing(part, known)
    return shown if missing is None else {**shown, "state": "failed", "detail": missing}


def _missing(part: dict[str, Any], known: Servers) -> str | None:
    if not _alive(part["pid"], part["create_time"]):
        return "its process is gone"
    match part["name"]:
        case "postgres":
            return postgres.waits_for(known, Path(known.postgres_data or ""), part["pid"])
        case "valkey":
            return valkey.waits_for(known, part["pid"])
        case _:
            url = _health_urls(known).get(part["name"])
            return url and answers(url)


def _health_urls(known: Servers) -> dict[str, str | None]:
    """Part -> the URL that answers if it is well; an API with TLS has a name of its own, which we do not know."""
    return {
        "flower": f"{known.flower_url}/healthcheck",
        "metrics": known.metrics_url.removesuffix("/metrics") + "/healthcheck",
        "api": f"{known.api_url}/api/health" if known.api_url.startswith("http:") else None,
    }


def _alive(pid: int, create_time: float | None) -> bool:
    try:
        process = psutil.Process(pid)
        same = create_time is None or abs(process.create_time() - create_time) < CREATE_TIME_TOLERANCE_SECONDS
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
