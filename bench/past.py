"""A database with a past: a million legal events, written with all constraint triggers active, so that they verify.

Each batch's events are inserted by one statement, in ascending order: the `append` trigger sees the earlier events of
the same statement, so an instance needs only one UPDATE, however long its history is. Two connections each write
their own share of the instances.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

from psycopg import connect

from bench.births import bear
from interlock.db.schema import in_schema

EVENTS_EACH = 201  # an odd number ends in `reviewing`, where the cycle of `bench.plant` begins
BATCH = 25  # instances per commit: few, because their deferred checks wait in memory
WRITERS = 2

MOVE = in_schema(
    "UPDATE interlock.workflow_instances SET current_state = 'reviewing', version = %(events)s WHERE id = ANY(%(ids)s)"
)
ASK = in_schema("""
INSERT INTO interlock.trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, status, result,
                                        finished_at)
SELECT i || ':' || n, sha256(convert_to(i || ':' || n, 'UTF8')), i,
       CASE WHEN n = 1 THEN 'start_review' WHEN n %% 2 = 0 THEN 'request_changes' ELSE 'resubmit' END, 'bench',
       'applied',
       jsonb_build_object(
           'from', CASE WHEN n = 1 THEN 'submitted' WHEN n %% 2 = 0 THEN 'reviewing' ELSE 'changes_requested' END,
           'to', CASE WHEN n %% 2 = 0 THEN 'changes_requested' ELSE 'reviewing' END,
           'seq', n, 'event_id', uuidv7()),
       now()
  FROM unnest(%(ids)s) AS i, generate_series(1, %(events)s) AS n
 ORDER BY i, n
""")
APPEND = in_schema("""
INSERT INTO interlock.workflow_transitions (id, workflow_id, seq, definition_version, from_state, to_state, trigger,
                                            triggered_by, request_id)
SELECT told.event_id, r.workflow_id, told.seq, '1.0.0', told."from", told."to", r.trigger, r.triggered_by, r.request_id
  FROM interlock.trigger_requests r,
       LATERAL jsonb_to_record(r.result) AS told (event_id uuid, seq integer, "from" text, "to" text)
 WHERE r.workflow_id = ANY(%(ids)s)
 ORDER BY r.workflow_id, told.seq
""")


def give(database_url: str, events: int, say: Callable[[str], None]) -> list[UUID]:
    """Write at least `events` events, each with its applied request; returns their instances."""
    with connect(database_url) as connection:
        ids = bear(connection, "pr_review", "submitted", -(-events // EVENTS_EACH))
    parts = [ids[start : start + BATCH] for start in range(0, len(ids), BATCH)]
    with ThreadPoolExecutor(WRITERS) as writers:
        for done, _ in enumerate(writers.map(lambda part: _write(database_url, part), parts), 1):
            say(f"writing history: {done * BATCH * EVENTS_EACH:,} events")
    with connect(database_url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    return ids


def _write(database_url: str, ids: list[UUID]) -> None:
    with connect(database_url) as connection:
        for statement in (MOVE, ASK, APPEND):
            connection.execute(statement, {"ids": ids, "events": EVENTS_EACH})
