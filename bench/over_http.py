"""`http`: durable accepts of triggers over HTTP, compared with the Python client, by as many callers of each."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import islice
from typing import Any
from uuid import UUID

from bench.effort import Effort
from bench.finding import Bar, Finding
from bench.plant import Plant
from bench.progress import Rounds
from bench.stage import Stage
from interlock.supervisor.environment import environment
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.overrides.at_once import at_once
from interlock.workers.overrides.operators import grant_each
from interlock.workers.overrides.tokens import TokenTerms, issue
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime

CALLERS = 4
WARM_UP = 200
Work = Sequence[tuple[UUID, str]]


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Each round fires as many triggers through the client as over HTTP, on one database, while no worker runs."""
    side = stage.side("http")
    plant = Plant(stage, side)
    plant.populate()
    with serving(stage, side, plant.client.runtime) as (port, headers):

        def over_http(work: Work) -> None:
            connection = HTTPConnection("127.0.0.1", port)
            for instance_id, trigger in work:
                body = {"instance": str(instance_id), "trigger": trigger}
                asked(connection, headers, "POST", "/api/triggers?wait=0", body)
            connection.close()

        def by_client(work: Work) -> None:
            for instance_id, trigger in work:
                plant.client.fire(instance_id, trigger, by="bench")

        for fire in (over_http, by_client):
            rate(plant, fire, WARM_UP)
        figures = [(rate(plant, over_http, effort.singles), rate(plant, by_client, effort.singles)) for _ in rounds]
    plant.close()
    ours, theirs = zip(*figures, strict=True)
    compared = f"fire over HTTP / by the Python client, {CALLERS} callers each, no worker"
    return [Finding("http", compared, "/s", ours, theirs, Bar("≥", 0.6))]


def rate(plant: Plant, fire: Callable[[Work], None], triggers: int) -> float:
    """Triggers accepted a second by `CALLERS` callers together."""
    shares = [list(islice(iter(plant.next, None), triggers // CALLERS)) for _ in range(CALLERS)]
    with ThreadPoolExecutor(CALLERS) as callers:
        began = time.perf_counter()
        list(callers.map(fire, shares))
        return triggers // CALLERS * CALLERS / (time.perf_counter() - began)


@contextmanager
def serving(stage: Stage, side: Servers, runtime: Runtime) -> Iterator[tuple[int, dict[str, str]]]:
    """The API over a side, in a process of its own, without a limit of rates.

    Returns:
        Its port, and the headers with which an agent's token is presented and JSON is sent.
    """
    with at_once(runtime) as acting:
        grant_each(acting, ["bench"], by="bench", reason="a benchmark")
    order = OverrideOrder("bench", "a benchmark")
    token = issue(runtime, TokenTerms("bench-agent", "agent", None), order).token
    settings = stage.settings(side).model_copy(update={"api_rate": 0})
    command = [sys.executable, "-m", "interlock.cli.main", "api", "serve", "--port", "0"]
    with subprocess.Popen(
        command, env=environment(settings), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout
            port = int(process.stdout.readline().strip().rpartition(":")[2])
            yield port, {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        finally:
            process.terminate()


def asked(
    connection: HTTPConnection, headers: dict[str, str], method: str, path: str, body: object = None
) -> tuple[float, Any]:
    """Milliseconds until an answer was read, and its JSON. Raises `RuntimeError` if it is none of 2xx."""
    began = time.perf_counter()
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    with connection.getresponse() as answer:
        text = answer.read()
    milliseconds = 1_000 * (time.perf_counter() - began)
    if answer.status // 100 != 2:
        raise RuntimeError(f"{method} {path}: {answer.status} {text[:200]!r}")
    return milliseconds, json.loads(text) if text else None
