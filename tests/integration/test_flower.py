"""Flower as the supervisor starts it: behind its password, read-only, with its own metrics for Prometheus."""

import base64
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from flower.urls import handlers
from prometheus_client.parser import text_string_to_metric_families

from interlock.supervisor.home import home_of
from interlock.supervisor.processes.specs import celery_parts
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests.listening import free_port
from tests.nodes import Node, node
from tests.waiting import eventually

pytestmark = pytest.mark.integration
USER, PASSWORD = "ops", "correct horse"
GUESSER = "127.0.0.2"  # of loopback, too: nobody else has to wait
# Whatever Flower takes a POST for, of this version and of those to come.
WRITES = [
    handler[0].replace("(.+)", "interlock.sweep")
    for handler in handlers
    if isinstance(handler, tuple) and handler[0].startswith("/api/") and "post" in vars(handler[1])
]


@pytest.fixture(scope="module")
def flower(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the part `flower`, started by the very command and environment that `interlock up` uses."""
    place = tmp_path_factory.mktemp("flower")
    own = {"database_url": servers.database_url, "broker_url": servers.broker_url}
    settings = Settings(home=place / "home", allowed_hosts=("metrics.example",), **own)
    home = home_of(settings)
    home.create()
    port = free_port()
    known = Servers(
        **own,
        flower_url=f"http://127.0.0.1:{port}",
        flower_user=USER,
        flower_password=PASSWORD,
        flower_port=port,
        metrics_port=port + 1,
    )
    (part,) = [each for each in celery_parts(home, settings, known) if each.name == "flower"]
    assert not any(PASSWORD in word for word in part.command), "arguments show in `ps`"
    with (place / "flower.log").open("wb") as log:
        process = subprocess.Popen(part.command, env={**os.environ, **part.environment}, stdout=log, stderr=log)
        try:
            eventually(lambda: part.waits_for(process.pid) is None, timeout=60)
            yield known.flower_url
        finally:
            process.terminate()
            process.wait()


def ask(
    url: str, path: str, *, method: str = "GET", login: str | None = None, host: str | None = None, by: str = ""
) -> tuple[int, bytes]:
    """The status and the body of an answer to who asks from the address `by`."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=20, source_address=(by, 0))
    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
    headers |= {"Host": host} if host else {}
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_it_answers_under_its_own_names_only_and_to_few_who_guess(flower: str) -> None:
    """A page that has its name mean 127.0.0.1 reads nothing; who fails ten times waits, with the right password too."""
    login = f"{USER}:{PASSWORD}"
    for path in ("/", "/metrics", "/healthcheck", "/static/css/flower.css", "/none"):
        assert ask(flower, path, login=login, host="evil.example") == (
            421,
            b"not a name of this server: see INTERLOCK_ALLOWED_HOSTS\n",
        )
    for host in ("localhost", "127.0.0.1:1", "metrics.example"):
        assert ask(flower, "/api/workers", login=login, host=host)[0] == 200
    guessed = [ask(flower, "/", login=f"{USER}:{guess}", by=GUESSER)[0] for guess in range(12)]
    assert guessed == [401] * 10 + [429] * 2
    assert ask(flower, "/", login=login, by=GUESSER)[0] == 429
    assert ask(flower, "/healthcheck", by=GUESSER)[0] == 200
    assert ask(flower, "/", login=login)[0] == 200, "others do not wait"


def results_of(flower: str, search: str = "") -> dict[str, str]:
    """Name and args -> result, of the tasks in the API's list that have ended; `search` as in its box."""
    status, body = ask(flower, f"/api/tasks?search={search}", login=f"{USER}:{PASSWORD}")
    assert status == 200
    ended = [task for task in json.loads(body).values() if task["state"] == "SUCCESS"]
    return {f"{task['name']} {task['args']}": task["result"] for task in ended}


def test_its_list_says_what_each_task_was_about_and_what_came_of_it(
    flower: str, knowing: Callable[..., Runtime], project: str, tmp_path: Path
) -> None:
    """A rejected trigger is told apart from an applied one, an effect has its instance's name, no sweep is in it."""
    own = Client(knowing("tests.own_machines"))
    own.create("release", "R-1", project=project)
    chosen = own.runtime.settings
    queues = "triggers,sweeps,effects,gates"
    beat = ("beat", "--schedule", str(tmp_path / "beat"))
    with (
        node(chosen, tmp_path, "worker", "-Q", queues, "-c", "2", "-E", HANGS=str(tmp_path / "attempts")),
        node(chosen, tmp_path, *beat),
    ):
        (tmp_path / "attempts").touch()
        own.fire("R-1", "skip", by="ann", request_id="skip")
        eventually(lambda: own.show("R-1")["current_state"] == "live", timeout=60)
        own.fire("R-1", "start", by="ann", request_id="late")
        expected = {
            "release.skip (release/R-1 skip by ann)": "applied: planned → watching",
            "effect.tests_watch (release/R-1)": "done",
            "release.well (release/R-1 well by effect)": "applied: watching → live",
            "effect.tests_tell (release/R-1)": "done",
            "release.start (release/R-1 start by ann)": "rejected: release in state 'live' does not answer to 'start'",
        }
        results = eventually(lambda: (seen := results_of(flower)).keys() >= expected.keys() and seen, timeout=30)
        assert {name: results[name] for name in expected} == expected
        assert [*results_of(flower, "result:rejected")] == ["release.start (release/R-1 start by ann)"]
    assert not [name for name in results_of(flower) if "sweep" in name]
    status, page = ask(flower, "/tasks", login=f"{USER}:{PASSWORD}")
    columns = re.findall(rb"<th[^>]*>\s*([A-Za-z]+)\s*</th>", page)
    assert (status, columns[:4]) == (200, [b"Name", b"args", b"State", b"Result"])


def test_it_asks_for_the_password_refuses_to_write_and_tells_prometheus_what_the_workers_did(
    flower: str, client: Client, celery_worker: Node, project: str
) -> None:
    login = f"{USER}:{PASSWORD}"
    assert ask(flower, "/api/workers")[0] == 401
    assert ask(flower, "/", login=f"{USER}:wrong")[0] == 401
    assert ask(flower, "/api/workers", login=login)[0] == 200
    assert len(WRITES) > 10
    for path in WRITES:
        assert ask(flower, path, method="POST", login=login) == (403, b"Read only mode is enabled"), path
        assert ask(flower, path, method="POST")[0] in (401, 403), path
    story = client.create("story", "S-1", project=project)
    client.fire(story["id"], "block", by="a")

    def applied() -> float:
        status, body = ask(flower, "/metrics")
        assert status == 200
        families = text_string_to_metric_families(body.decode())
        return sum(
            sample.value
            for family in families
            if family.name == "flower_events"
            for sample in family.samples
            if sample.labels.get("task") == "story.block" and sample.labels.get("type") == "task-succeeded"
        )

    assert eventually(applied, timeout=30) == 1
