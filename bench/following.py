"""`events`: from a move to the API's streams and the console's page, while triggers are fired without a pause."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime
from http.client import HTTPConnection, HTTPResponse
from statistics import median, quantiles

from bench import in_browser
from bench.effort import Effort
from bench.finding import Bar, Finding
from bench.nodes import interlock_nodes
from bench.over_http import serving
from bench.plant import Plant
from bench.progress import Rounds
from bench.stage import Stage
from interlock.workers.runtime import Runtime

STREAMS = 10
WARM_UP = 200


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """p50 and p99 of each round, over all streams, from the event's own time to its arrival."""
    side = stage.side("events")
    runtime = Runtime(stage.settings(side))
    with interlock_nodes(stage, side), closing(runtime), serving(stage, side, runtime) as (port, headers):
        plant = Plant(stage, side)
        plant.populate()
        connections = [HTTPConnection("127.0.0.1", port) for _ in range(STREAMS)]

        def opened(connection: HTTPConnection) -> HTTPResponse:
            connection.request("GET", "/api/events?type=pr_review", None, headers)
            return connection.getresponse()

        streams = [opened(each) for each in connections]
        plant.single(WARM_UP)
        _followed(streams, WARM_UP, lambda: None)
        figures = [_followed(streams, effort.singles, lambda: plant.single(effort.singles)) for _ in rounds]
        for each in connections:
            each.close()
        in_page = in_browser.measure(plant, port, rounds)
        plant.close()
    said = f"from an event to {STREAMS} streams over HTTP, under load"
    p50 = tuple(median(each) for each in figures)
    p99 = tuple(quantiles(each, n=100)[98] for each in figures)
    return [Finding("events.p50", said, "s", p50), Finding("events.p99", said, "s", p99, (), Bar("≤", 1.0)), *in_page]


def _followed(streams: list[HTTPResponse], events: int, fire: Callable[[], object]) -> list[float]:
    """Seconds after which each stream got each of so many events, while `fire` makes them."""
    with ThreadPoolExecutor(len(streams)) as threads:
        reading = [threads.submit(_lateness, each, events) for each in streams]
        fire()
        return [seconds for each in reading for seconds in each.result()]


def _lateness(stream: HTTPResponse, events: int) -> list[float]:
    found: list[float] = []
    while len(found) < events:
        line = stream.readline()
        if line.startswith(b"data: "):
            found.append(time.time() - datetime.fromisoformat(json.loads(line[6:])["created_at"]).timestamp())
        elif not line:
            raise RuntimeError("the stream ended")
    return found
