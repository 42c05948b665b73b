"""`claims`: an agent's claim of a task over HTTP, while no worker runs."""

from contextlib import closing
from http.client import HTTPConnection
from statistics import median, quantiles

from bench.carrying import Carrier
from bench.effort import Effort
from bench.finding import Bar, Finding
from bench.over_http import asked, serving
from bench.progress import Rounds
from bench.stage import Stage

TASKS = 200  # in a round


def measure(stage: Stage, _effort: Effort, rounds: Rounds) -> list[Finding]:
    """p50 and p99 of each round; the agent reports each task before it claims the next."""
    side = stage.side("claims")
    with closing(Carrier(stage, side)) as carrier, serving(stage, side, carrier.runtime) as (port, headers):
        http = HTTPConnection("127.0.0.1", port)
        project = f"?project={carrier.runtime.settings.project}"
        asked(http, headers, "PUT", f"/api/agent{project}", {})
        figures: list[list[float]] = []
        for _ in (-1, *rounds):  # once to warm up
            carrier.begin([{"id": f"t{n}", "agent": {"instructions": "nothing"}} for n in range(TASKS)])
            carrier.analyze()
            figures.append([])
            for _ in range(TASKS):
                milliseconds, claim = asked(http, headers, "POST", f"/api/agent/claims{project}")
                if claim is None:
                    raise RuntimeError("the agent found no task, so the figures would be wrong")
                figures[-1].append(milliseconds)
                asked(http, headers, "POST", f"/api/agent/finish{project}", {"token": claim["token"]})
        http.close()
    said = f"an agent's claim over HTTP, of {TASKS} queued tasks"
    p50 = tuple(median(each) for each in figures[1:])
    p99 = tuple(quantiles(each, n=100)[98] for each in figures[1:])
    return [Finding("claims.p50", said, "ms", p50, (), Bar("≤", 20)), Finding("claims.p99", said, "ms", p99)]
