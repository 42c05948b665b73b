"""`audit`: `audit verify` against a plain sequential read of the same rows in Python, and its memory use.

Each measurement is its own process, so that none inherits another's memory: `python -m bench.audit URL WHAT`.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import psycopg

from bench import past
from bench.effort import Effort
from bench.finding import Bar, Finding, interleaved
from bench.progress import Rounds
from bench.stage import Stage
from interlock.db.audit import verify
from interlock.db.connection import make_engine
from interlock.db.schema import in_schema
from interlock.workers.settings import Settings

ROOT = Path(__file__).parents[1]
SMALLER = 5


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Rates on the larger history, and peak memory on both."""
    large, small = stage.side("audit_large"), stage.side("audit_small")
    rows = past.EVENTS_EACH * len(past.give(large.database_url, effort.past_events, rounds.say))
    few = past.EVENTS_EACH * len(past.give(small.database_url, effort.past_events // SMALLER, rounds.say))
    figures = interleaved(
        rounds,
        lambda: _run(large.database_url, "verify")["rate"],
        lambda: _run(large.database_url, "read")["rate"],
    )
    rounds.say("memory")
    peaks = [(_run(url, "verify")["mib"],) for url in (large.database_url, small.database_url)]
    return [
        Finding(
            "audit.verify",
            f"audit verify : a plain sequential read of the same rows in Python, {rows:,} of them",
            "/s",
            *figures,
            bar=Bar("≥", 0.5),
            note="theirs: SELECT * through a server-side cursor, each row as psycopg makes it, nothing done with it",
        ),
        Finding("audit.memory", f"peak of audit verify, {rows:,} events : {few:,}", "MiB", *peaks, bar=Bar("≤", 1.1)),
    ]


def _run(database_url: str, what: str) -> dict[str, float]:
    told = subprocess.run(
        [sys.executable, "-m", "bench.audit", database_url, what], cwd=ROOT, check=True, capture_output=True, text=True
    )
    answer: dict[str, float] = json.loads(told.stdout)
    return answer


def _verify(database_url: str) -> int:
    engine = make_engine(Settings(database_url=database_url).resolved_database_url())
    try:
        verdict = verify.verify(engine)
    finally:
        engine.dispose()
    if not verdict.ok:
        raise SystemExit(f"the history of the benchmark does not verify: {verdict.problems[:3]}")
    return verdict.transitions


def _read(database_url: str) -> int:
    with psycopg.connect(database_url) as connection, connection.cursor(name="plain") as cursor:
        cursor.itersize = 2_000
        return sum(1 for _ in cursor.execute(in_schema("SELECT * FROM interlock.workflow_transitions")))


def main() -> None:
    """One measurement; prints its rate (events per second) and its peak memory (MiB)."""
    database_url, what = sys.argv[1:]
    begun = time.perf_counter()
    rows = {"verify": _verify, "read": _read}[what](database_url)
    took = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rate": rows / took, "mib": peak}))


if __name__ == "__main__":
    main()
