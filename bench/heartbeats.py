"""`heartbeats`: the sweep for silent workers, over a hundred thousand that are all alive."""

import time
from uuid import UUID

from psycopg import connect
from sqlalchemy import Engine

from bench.births import bear
from bench.effort import Effort
from bench.finding import Bar, Finding
from bench.progress import Rounds
from bench.stage import Stage
from interlock.beat import heartbeats
from interlock.db.connection import make_engine, transaction
from interlock.db.core.request_rows import itself
from interlock.db.orchestration import workers as roster
from interlock.db.schema import in_schema
from interlock.workers.engine import worker_secrets

SWEEPS_A_ROUND = 20
SAID_TOGETHER = 5_000  # workers per statement: a process with many workers sends their heartbeats together
SECRET = worker_secrets.make()  # of all of them
BUSY_EACH = 2  # every second worker is in state busy
MOVED = in_schema("""
WITH asked AS (
    INSERT INTO interlock.trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, authority,
                                            proof, bound_version, status, finished_at)
    SELECT id || ':' || version, '', id, %(trigger)s::text, entity_id, %(authority)s::text,
           CASE %(authority)s::text WHEN 'holder' THEN %(proof)s::text ELSE 'state:' || version END, version, 'applied',
           now()
      FROM interlock.workflow_instances WHERE id = ANY (%(ids)s)
    RETURNING workflow_id, request_id, triggered_by
), moved AS (
    UPDATE interlock.workflow_instances SET current_state = %(state)s, version = version + 1 WHERE id = ANY (%(ids)s)
    RETURNING id, version
)
INSERT INTO interlock.workflow_transitions (id, workflow_id, seq, definition_version, from_state, to_state, trigger,
                                            triggered_by, request_id)
SELECT uuidv7(), id, version, '1.1.0', %(was)s, %(state)s, %(trigger)s::text, triggered_by, request_id
  FROM moved JOIN asked ON workflow_id = id
""")


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Milliseconds of `beat.heartbeats.heartbeats` in its own transaction: the median and maximum of each round.

    Before each round every worker sends one heartbeat, as it would within a minute. The table is as the heartbeats left
    it, neither vacuumed nor analysed.
    """
    side = stage.side("heartbeats")
    workers = _enlist(side.database_url, effort.workers, rounds)
    chosen = stage.settings(side)
    engine = make_engine(chosen.resolved_database_url())
    took: list[list[float]] = []
    for _ in rounds:
        _hear(engine, workers)
        sweeps = [_sweep(engine, chosen.silent_seconds, chosen.recovery_seconds) for _ in range(SWEEPS_A_ROUND)]
        took.append(sorted(sweeps))
    engine.dispose()
    message = f"heartbeats sweep, {effort.workers:,} healthy workers"
    return [
        Finding("heartbeats", message, "ms", tuple(each[len(each) // 2] for each in took), bar=Bar("<", 50.0)),
        Finding("heartbeats.worst", f"{message}, slowest of {SWEEPS_A_ROUND}", "ms", tuple(each[-1] for each in took)),
    ]


def _enlist(database_url: str, workers: int, rounds: Rounds) -> list[UUID]:
    """Register workers, half of them busy, with the database's constraint triggers active."""
    rounds.say(f"enlisting {workers:,} workers")
    context = {"capabilities": ["python", "git", "interlock:execute"], **worker_secrets.digest_of(SECRET)}
    with connect(database_url) as connection:
        ids = bear(connection, "worker", "initializing", workers, version="1.1.0", context=context)
        for trigger, authority, was, state, whom in (
            ("registration_complete", "holder", "initializing", "idle", ids),
            ("task_assigned", "machinery", "idle", "busy", ids[::BUSY_EACH]),
        ):
            move = {"trigger": trigger, "authority": authority, "was": was, "state": state}
            move |= {"proof": itself(SECRET).proof}
            connection.execute(MOVED, move | {"ids": whom})
    return ids


def _hear(engine: Engine, workers: list[UUID]) -> None:
    for start in range(0, len(workers), SAID_TOGETHER):
        with transaction(engine) as connection:
            roster.heartbeat(connection, dict.fromkeys(workers[start : start + SAID_TOGETHER], SECRET))


def _sweep(engine: Engine, silent_seconds: float, gone_seconds: float) -> float:
    began = time.perf_counter()
    with transaction(engine) as connection:
        found, _ = heartbeats.heartbeats(connection, silent_seconds=silent_seconds, gone_seconds=gone_seconds)
    took = (time.perf_counter() - began) * 1e3
    if found:
        raise RuntimeError("no worker should be silent")
    return took
