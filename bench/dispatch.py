"""`dispatch`: a dispatch sweep over a hundred thousand timers that are not due yet."""

import time

from psycopg import connect
from sqlalchemy import Engine

from bench.births import bear
from bench.effort import Effort
from bench.finding import Bar, Finding
from bench.progress import Rounds
from bench.stage import Stage
from interlock.beat import sweeps
from interlock.db.connection import make_engine, transaction
from interlock.db.schema import in_schema

SWEEPS_A_ROUND = 40
TIMERS = in_schema("""
INSERT INTO interlock.trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, origin,
                                        authority, proof, bound_version, status, not_before)
SELECT id || ':0:expire', '', id, 'expire', 'system', 'timer', 'machinery', 'state:0', 0, 'scheduled',
       now() + interval '1 hour' + random() * interval '71 hours'
  FROM interlock.workflow_instances
""")


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Milliseconds of `beat.sweeps.dispatch` in its own transaction: the median and maximum of each round.

    The tables are as the inserts left them, neither vacuumed nor analysed.
    """
    side = stage.side("dispatch")
    rounds.say(f"arming {effort.timers:,} timers")
    with connect(side.database_url) as connection:
        bear(connection, "approval", "pending", effort.timers)
        connection.execute(TIMERS)
    engine = make_engine(stage.settings(side).resolved_database_url())
    took = [sorted(_sweep(engine) for _ in range(SWEEPS_A_ROUND)) for _ in rounds]
    engine.dispose()
    message = f"dispatch sweep, {effort.timers:,} timers not due"
    return [
        Finding("dispatch", message, "ms", tuple(each[len(each) // 2] for each in took), bar=Bar("<", 20.0)),
        Finding("dispatch.worst", f"{message}, slowest of {SWEEPS_A_ROUND}", "ms", tuple(each[-1] for each in took)),
    ]


def _sweep(engine: Engine) -> float:
    began = time.perf_counter()
    with transaction(engine) as connection:
        due = sweeps.dispatch(connection, silent_seconds=60.0)
    took = (time.perf_counter() - began) * 1e3
    if due.woken or due.partitions:
        raise RuntimeError("no timer should be due")
    return took
