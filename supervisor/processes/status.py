"""What runs here, looked at rather than remembered: the answer of `interlock status`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from supervisor import lock, postgres, servers, valkey
from supervisor.home import Home, home_of
from supervisor.servers import Servers
from supervisor.table import answers
from workers.settings import Settings

# psutil derives it from the boot time, which moves a little when the clock is set.
CREATE_TIME_TOLERANCE_SECONDS = 2.0
SHOWN = ("name", "state", "pid", "restarts", "since", "detail")


@dataclass(frozen=True)
class Status:
    """The state of one home. `parts` are dicts with the keys `SHOWN`; URLs are None where never known."""

    running: bool
    home: Path
    parts: list[dict[str, Any]]
    database_url: str | None
    broker_url: str | None
    redis_url: str | None
    flower_url: str | None
    metrics_url: str | None

    @property
    def ready(self) -> bool:
        """Whether every part runs and answers."""
        return self.running and bool(self.parts) and all(part["state"] == "ready" for part in self.parts)

    def as_json(self) -> dict[str, Any]:
        """What `status --json` prints."""
        return {**vars(self), "home": str(self.home)}


def status(settings: Settings) -> Status:
    """Look at every part of this home: connect to PostgreSQL, ping Valkey, ask Flower, find the others' processes."""
    home = home_of(settings)
    known = servers.load(home)
    running = lock.holder(home) is not None
    database_url = settings.database_url or known.database_url or None
    broker_url = settings.broker_url or known.broker_url or None
    redis_url = settings.redis_url or (broker_url if (broker_url or "").startswith("redis") else None)
    parts = [_seen(part, known) if running else _absent(part) for part in recorded(home)]
    return Status(
        running,
        home.path,
        parts,
        database_url,
        broker_url,
        redis_url,
        known.flower_url or None,
        known.metrics_url or None,
    )


def recorded(home: Home) -> list[dict[str, Any]]:
    """The parts as the supervisor last wrote them; none where it never ran."""
    try:
        parts: list[dict[str, Any]] = json.loads(home.processes.read_text())["parts"]
    except (OSError, ValueError, KeyError):
        return []
    return parts


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
        case "flower":
            return answers(f"{known.flower_url}/healthcheck")
        case "metrics":
            return answers(known.metrics_url.removesuffix("/metrics") + "/healthcheck")
        case _:
            return None


def _alive(pid: int, create_time: float | None) -> bool:
    try:
        process = psutil.Process(pid)
        same = create_time is None or abs(process.create_time() - create_time) < CREATE_TIME_TOLERANCE_SECONDS
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
