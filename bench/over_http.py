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

CALLERS = (16, 4)
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

        both = (over_http, by_client)
        for fire in both:
            rate(plant, fire, WARM_UP, CALLERS[0])
        figures = [
            [[rate(plant, fire, effort.singles, callers) for fire in both] for callers in CALLERS] for _ in rounds
        ]
    plant.close()
    return [finding(callers, round_) for callers, round_ in zip(CALLERS, zip(*figures, strict=True), strict=True)]


def finding(callers: int, figures: Sequence[Sequence[float]]) -> Finding:
    """The figures of both sides in each round, with so many callers of each."""
    ours, theirs = zip(*figures, strict=True)
    name, bar = ("http", Bar("≥", 0.6)) if callers == CALLERS[0] else (f"http{callers}", None)
    compared = f"fire over HTTP / by the Python client, {callers} callers each, no worker"
    return Finding(name, compared, "/s", ours, theirs, bar)


def rate(plant: Plant, fire: Callable[[Work], None], triggers: int, callers: int) -> float:
    """Triggers accepted a second by so many callers together."""
    shares = [list(islice(iter(plant.next, None), triggers // callers)) for _ in range(callers)]
    with ThreadPoolExecutor(callers) as together:
        began = time.perf_counter()
        list(together.map(fire, shares))
        return triggers // callers * callers / (time.perf_counter() - began)


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
