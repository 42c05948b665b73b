"""`pages`: the first, the middle and the last page of very many instances over HTTP."""

from contextlib import closing
from http.client import HTTPConnection
from statistics import median

from psycopg import connect

from bench.births import bear
from bench.effort import Effort
from bench.finding import Bar, Finding
from bench.over_http import asked, serving
from bench.progress import Rounds
from bench.stage import Stage
from interlock.workers.runtime import Runtime

PAGES = 60  # of each kind in a round
SIZE = 50
PART = 50_000  # instances created by one statement
PROJECT = "00000000-0000-7000-8000-000000000000"


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """p50 of each kind of page in each round; they take turns."""
    side = stage.side("pages")
    ids = []
    with connect(side.database_url, autocommit=True) as connection:
        for part in range(effort.past_events // PART):
            rounds.say(f"creating instances: {len(ids):,}")
            ids += bear(connection, "story", "analysis", PART, prefix=f"{part}-")
        connection.execute("VACUUM ANALYZE")
    ids.sort()
    befores = {"first": "", "middle": f"&before={ids[len(ids) // 2]}", "last": f"&before={ids[SIZE]}"}
    figures: dict[str, list[float]] = {name: [] for name in befores}
    with closing(Runtime(stage.settings(side))) as runtime, serving(stage, side, runtime) as (port, headers):
        http = HTTPConnection("127.0.0.1", port)
        for number in (-1, *rounds):  # once to warm up
            took: dict[str, list[float]] = {name: [] for name in befores}
            for _ in range(PAGES):
                for name, before in befores.items():
                    path = f"/api/instances?project={PROJECT}&type=story&state=analysis&limit={SIZE}{before}"
                    milliseconds, page = asked(http, headers, "GET", path)
                    if len(page["items"]) != SIZE:
                        raise RuntimeError(f"the {name} page has {len(page['items'])} instances")
                    took[name].append(milliseconds)
            if number >= 0:
                for name, each in took.items():
                    figures[name].append(median(each))
        http.close()
    said = f"{SIZE} of {len(ids):,} instances of one project, by type and state, p50"
    first = tuple(figures["first"])
    return [
        Finding("pages.first", f"the first page, {said}", "ms", first, (), Bar("≤", 300)),
        Finding("pages.middle", f"a page of the middle : the first, {said}", "ms", tuple(figures["middle"]), first),
        Finding("pages.last", f"the last : the first, {said}", "ms", tuple(figures["last"]), first, Bar("≤", 1.2)),
    ]
