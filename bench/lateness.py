"""`lateness`: how long after its time a schedule's trigger is applied, with nodes and beat of `interlock up`."""

import time
from statistics import median, quantiles

from psycopg import Connection, connect
from uuid_utils.compat import uuid7

from bench.effort import Effort
from bench.finding import Bar, Finding
from bench.nodes import interlock_nodes
from bench.progress import Rounds
from bench.stage import Stage
from interlock.db.schema import in_schema
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime

EACH_SECOND = 20  # schedules that are due together
AHEAD_SECONDS = 3  # from their creation to the first of them
PATIENCE_SECONDS = 60.0
# Each fires once: its next time is a day later. By the database's clock, as everything about schedules.
BORN = in_schema("""
INSERT INTO interlock.workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project,
                                          context, created_by)
SELECT gen_random_uuid(), 'schedule', '1.0.0', 'active', entity_id, project,
       jsonb_build_object(
           'times', jsonb_build_object('every_seconds', 86400, 'start',
               date_trunc('second', now()) + make_interval(secs => %(ahead)s + row_number() OVER () / %(each)s)),
           'does', jsonb_build_object(
               'fire', jsonb_build_object('instance', id::text, 'trigger', 'design_complete'))), 'bench'
  FROM interlock.workflow_instances WHERE project = %(project)s
""")
LATE = in_schema("""
SELECT extract(epoch FROM r.finished_at - right(r.request_id, 16)::timestamptz) * 1000
  FROM interlock.trigger_requests r JOIN interlock.workflow_instances i ON i.id = r.workflow_id
 WHERE i.project = %(project)s AND r.status = 'applied'
""")


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """p50 and p99 of each round: milliseconds from the time until the transaction begins that applies the trigger."""
    side = stage.side("lateness")
    seconds = round(effort.latency_seconds)
    late = list[list[float]]()
    with interlock_nodes(stage, side, beat=True), connect(side.database_url, autocommit=True) as database:
        client = Client(Runtime(stage.settings(side)))
        for _ in rounds:
            late.append(_round(client, database, seconds * EACH_SECOND))
        client.runtime.close()
    message = "a schedule's time to its applied trigger"
    note = f"{EACH_SECOND} each second for {seconds} s; a sweep looks once a second"
    return [
        Finding("lateness.p50", message, "ms", tuple(median(each) for each in late)),
        Finding(
            "lateness.p99",
            f"{message}, p99",
            "ms",
            tuple(_p99(each) for each in late),
            bar=Bar("≤", 1_500.0),
            note=note,
        ),
    ]


def _round(client: Client, database: "Connection[tuple[float]]", count: int) -> list[float]:
    project = str(uuid7())
    client.create_many([client.birth("story", f"L-{number}", project=project) for number in range(count)])
    given = {"project": project, "each": EACH_SECOND, "ahead": AHEAD_SECONDS}
    database.execute(BORN, given)
    until = time.perf_counter() + AHEAD_SECONDS + count / EACH_SECOND + PATIENCE_SECONDS
    while len(found := database.execute(LATE, given).fetchall()) < count:
        if time.perf_counter() > until:
            raise RuntimeError(f"{len(found)} of {count} triggers were applied")
        time.sleep(0.5)
    return [float(each[0]) for each in found]


def _p99(figures: list[float]) -> float:
    return quantiles(figures, n=100)[98]
