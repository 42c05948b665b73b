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
from uuid import UUID

from bench.effort import Effort
from bench.finding import Bar, Finding
from bench.plant import Plant
from bench.progress import Rounds
from bench.stage import Stage
from interlock.supervisor.environment import environment
from interlock.workers.overrides.at_once import at_once
from interlock.workers.overrides.operators import grant_each
from interlock.workers.overrides.tokens import TokenTerms, issue
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.settings import Settings

CALLERS = 4
WARM_UP = 200
Work = Sequence[tuple[UUID, str]]


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Each round fires as many triggers through the client as over HTTP, on one database, while no worker runs."""
    side = stage.side("http")
    plant = Plant(stage, side)
    plant.populate()
    with at_once(plant.client.runtime) as acting:
        grant_each(acting, ["bench"], by="bench", reason="a benchmark")
    order = OverrideOrder("bench", "a benchmark")
    token = issue(plant.client.runtime, TokenTerms("bench-agent", "agent", None), order).token
    settings = stage.settings(side).model_copy(update={"api_rate": 0})
    with serving(settings) as port:

        def over_http(work: Work) -> None:
            connection = HTTPConnection("127.0.0.1", port)
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            for instance_id, trigger in work:
                body = json.dumps({"instance": str(instance_id), "trigger": trigger})
                connection.request("POST", "/api/triggers?wait=0", body, headers)
                with connection.getresponse() as answer:
                    answer.read()
                if answer.status != 202:
                    raise RuntimeError(f"answered {answer.status}")
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
def serving(settings: Settings) -> Iterator[int]:
    """The API over a database, in a process of its own: its port."""
    command = [sys.executable, "-m", "interlock.cli.main", "api", "serve", "--port", "0"]
    with subprocess.Popen(
        command, env=environment(settings), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout
            yield int(process.stdout.readline().strip().rpartition(":")[2])
        finally:
            process.terminate()
