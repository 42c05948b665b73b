"""What tells of a backup or an export, and what the supervisor wrote of itself: somebody may have changed it."""

import json
from dataclasses import asdict

from hypothesis import strategies as st

from interlock.supervisor.home import Home
from interlock.supervisor.processes import lock, status
from interlock.supervisor.servers import endpoints
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.audit import log_validation
from interlock.workers.audit.exports import MANIFEST
from tests.fuzz.door import Door, Ground, Target, overwrite
from tests.fuzz.shapes import documents, written

EXPORT = {
    "number": 1,
    "previous": "0" * 64,
    "key": "0" * 16,
    "files": [{"name": "events.jsonl.gz", "sha256": "0" * 64}],
}


def _export(ground: Ground) -> Target:
    directory = ground.directory / "export-000001.2026-01-01"

    def read(data: bytes) -> None:
        overwrite(directory / MANIFEST, data)
        for finding in log_validation.seals([directory], {}):
            str(finding)

    return read


EXPORTS = Door(
    "exports",
    "For any manifest of an export, `audit validate` reports findings.",
    _export,
    documents(EXPORT),
    (written(EXPORT),),
)

KNOWN = asdict(Servers("postgresql://x@h/y", "redis://h", "http://h", postgres_port=1, postgres_data="/x"))
PART = {"name": "beat", "state": "ready", "pid": 1, "restarts": 0, "since": "2026-01-01T00:00:00Z", "detail": ""}
PROCESSES = {"parts": [PART | {"create_time": 1.5, "name": name} for name in ("beat", "work1", "triggers1")]}
SERVERS, LOCK = b"s", b"l"


def _home(ground: Ground) -> Target:
    home = Home(ground.directory / "home")
    settings = ground.runtime.settings.model_copy(update={"home": home.path, "database_url": None, "broker_url": None})
    overwrite(home.servers, written(KNOWN))
    overwrite(home.lock, b"1")

    def read(data: bytes) -> None:
        which, content = data[:1], data[1:]
        file = {SERVERS: home.servers, LOCK: home.lock}.get(which, home.processes)
        before = file.read_bytes() if file.exists() else b""
        overwrite(file, content)
        try:
            found = status.status(settings)
            json.dumps(found.as_json(), default=str)
            lock.holder(home)
            endpoints.load(home)
            settings.resolved_database_url()
            settings.resolved_broker_url()
            settings.resolved_redis_url()
        finally:
            overwrite(file, before)

    return read


HOMES = Door(
    "homes",
    "With any content of servers.json, processes.json and the lock, `status` and every command print a message.",
    _home,
    st.tuples(st.sampled_from((SERVERS, LOCK, b"p")), documents(KNOWN, PROCESSES)).map(b"".join),
    (SERVERS + written(KNOWN), b"p" + written(PROCESSES), LOCK + b"1"),
)
