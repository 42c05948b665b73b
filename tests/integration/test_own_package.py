"""A machine in a package of its own, beside the installed wheel: its effect is done once, whatever is killed."""

import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from interlock.supervisor.environment import environment
from interlock.workers.effects import holder
from interlock.workers.settings import Settings
from tests.listening import answering
from tests.nodes import CELERY, node
from tests.waiting import eventually
from tests.wheels import Several, built, installed, several

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("wheel")]  # which is built and installed once
IMAGE = '{"image":"web:7"}'
EXAMPLE = Path(__file__).parents[2] / "examples" / "deploy"
Dba = "psycopg.Connection[Any]"


@dataclass
class Service:
    """What deploys: does a thing once for each idempotency key, and can be slow to answer the first who asks for it."""

    url: str = ""
    done: Counter[tuple[str, str]] = field(default_factory=Counter)  # (what, name) -> how often it was really done
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    keys: set[str] = field(default_factory=set)
    slow: dict[tuple[str, str], threading.Event] = field(default_factory=dict)

    def take(self, verb: str, name: str, key: str) -> None:
        thing = (verb, name)
        self.asked[thing] += 1
        first = key not in self.keys
        if first:
            self.keys.add(key)
            self.done[thing] += 1
        if first and thing in self.slow:
            self.slow[thing].wait(120)


@contextmanager
def serving() -> Iterator[Service]:
    service = Service()

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.take(self.path.strip("/"), body["name"], self.headers["Idempotency-Key"])
            answer = json.dumps({"url": f"https://{body['name']}", "image": body["image"]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Who asked was killed."""

    with answering(Server(("127.0.0.1", 0), Answer)) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield service
        finally:
            for each in service.slow.values():
                each.set()


@dataclass(frozen=True)
class Place:
    """An installation whose processes import the wheel and the package, and nothing of this repository."""

    run: Several
    dba: Dba

    def interlock(self, *lines: str) -> list[str]:
        """Run command lines in one process; what each printed."""
        said = self.run(*(f"$ {line}" for line in lines))
        assert {code for _, code in said} == {"0"}, said
        return [each for each, _ in said]

    def one(self, query: str, name: str) -> Any:
        row = self.dba.execute(
            f"SELECT {query} FROM workflow_instances i JOIN effects e ON e.workflow_id = i.id"
            " WHERE i.entity_id = %s ORDER BY e.created_at LIMIT 1",
            (name,),
        ).fetchone()
        return row and row[0]

    def trail(self, name: str) -> list[str]:
        rows = self.dba.execute(
            "SELECT t.trigger FROM workflow_transitions t JOIN workflow_instances i ON i.id = t.workflow_id"
            " WHERE i.entity_id = %s ORDER BY t.seq",
            (name,),
        )
        return [row[0] for row in rows]

    def deploy(self, *names: str) -> None:
        begins = [
            line
            for name in names
            for line in (
                f"create deploy {name} --context {IMAGE} --by ann",
                f"fire {name} start --by ann --wait --json",
            )
        ]
        held = [json.loads(said) for said in self.interlock(*begins)[1::2]]
        assert {each["status"] for each in held} == {"waiting"}, "a second person must approve"
        self.interlock(*(f"fire {each['result']['approval_id']} approve --by bob" for each in held))


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as found:
        yield found


@pytest.fixture
def place(wheel_site: Path, settings: Settings, service: Service, tmp_path: Path, dba: Dba) -> Iterator[Place]:
    """Two worker processes and beat, started as anybody would from the two packages."""
    package = installed(built(EXAMPLE, "wheel", tmp_path / "wheel"), tmp_path / "package")
    variables = {"PYTHONPATH": os.pathsep.join((str(package), str(wheel_site))), "DEPLOYS_URL": service.url}
    chosen = settings.model_copy(update={"backoff_base_seconds": 0.05, "backoff_cap_seconds": 0.1})
    words = ("worker", "-Q", "triggers,sweeps,effects", "-c", "4")
    with ExitStack() as started:
        env = environment(chosen) | variables
        made = Place(started.enter_context(several((sys.executable, "-P"), env, tmp_path)), dba)
        _, shown = made.interlock("migrate --yes", "definitions show deploy --json")
        assert json.loads(shown)["type"] == "deploy"
        started.enter_context(node(chosen, tmp_path, *words, program=CELERY, **variables))
        schedule = ("beat", "--schedule", str(tmp_path / "beat"))
        started.enter_context(node(chosen, tmp_path, *schedule, program=CELERY, **variables))
        yield made


def test_the_machine_is_one_short_file() -> None:
    machine = (EXAMPLE / "deploys.py").read_text()
    assert len(machine.splitlines()) <= 60


@pytest.mark.timeout(300)
def test_its_effect_is_done_once_though_its_worker_is_killed_and_its_deadline_rolls_it_back(
    place: Place, service: Service
) -> None:
    service.slow |= {("deploy", name): threading.Event() for name in ("D-1", "D-2")}
    place.deploy("D-1", "D-2")
    eventually(lambda: service.asked["deploy", "D-1"] == 1, timeout=60)
    assert place.one("i.current_state", "D-1") == "deploying"
    os.kill(holder.pid(place.one("e.leased_by", "D-1")), signal.SIGKILL)  # the service has done it, nobody knows
    eventually(lambda: place.one("i.current_state", "D-1") == "live", timeout=60)
    assert (service.asked["deploy", "D-1"], service.done["deploy", "D-1"]) == (2, 1)
    assert (place.one("e.attempts", "D-1"), place.trail("D-1")) == (2, ["start", "deployed"])
    assert place.one("e.result", "D-1") == {"url": "https://D-1", "image": "web:7"}

    eventually(lambda: service.asked["deploy", "D-2"] == 1, timeout=60)
    due = (
        "UPDATE trigger_requests r SET not_before = now() FROM workflow_instances i"
        " WHERE i.id = r.workflow_id AND i.entity_id = 'D-2' AND r.trigger = 'give_up'"
    )
    assert place.dba.execute(due).rowcount == 1, "its quarter of an hour is over"
    eventually(lambda: place.one("i.current_state", "D-2") == "rolled_back", timeout=60)
    service.slow["deploy", "D-2"].set()
    eventually(lambda: place.one("e.status", "D-2") == "cancelled", timeout=60)
    assert place.trail("D-2") == ["start", "give_up", "undone"]
    assert service.done["undeploy", "D-2"] == 1
    (verdict,) = place.interlock("audit verify --json")
    assert json.loads(verdict)["ok"]
