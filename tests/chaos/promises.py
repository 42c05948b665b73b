"""What must be true after anything: nothing lost, nothing twice, in order, nothing rewritten, no stale report."""

import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from uuid import UUID

from interlock.db.audit import verify
from interlock.workers.audit.log_validation import validate
from interlock.workers.broker.event_stream import STREAM
from interlock.workers.relay.journal import files
from tests.chaos.installation import Installation
from tests.waiting import eventually

SETTLE_SECONDS = 90.0

# Timers may lie in the future; everything else has to be decided.
UNSETTLED = """
SELECT request_id, status, error FROM trigger_requests
 WHERE status NOT IN ('applied', 'rejected', 'superseded') AND origin <> 'timer'"""
UNFINISHED_EFFECTS = "SELECT id, status, attempts, error FROM effects WHERE status <> 'done'"
# Asked at once: an effect that ends fires a trigger, and a trigger that is applied begins an effect.
AT_WORK = f"SELECT r::text FROM ({UNSETTLED}) r UNION ALL SELECT e::text FROM ({UNFINISHED_EFFECTS}) e LIMIT 5"
TWICE = "SELECT request_id FROM workflow_transitions GROUP BY request_id HAVING count(*) > 1"
MOVED_WITHOUT_REQUEST = """
SELECT t.id, t.request_id, r.status
  FROM workflow_transitions t LEFT JOIN trigger_requests r USING (request_id, workflow_id, trigger)
 WHERE r.status IS DISTINCT FROM 'applied' OR r.result ->> 'event_id' <> t.id::text"""
# A vote below the quorum makes no move of its own: it was part of the one that decided.
APPLIED_WITHOUT_MOVE = """
SELECT r.request_id
  FROM trigger_requests r LEFT JOIN workflow_transitions t
    ON t.id::text = r.result ->> 'event_id' AND t.workflow_id = r.workflow_id AND t.trigger = r.trigger
 WHERE r.status = 'applied'
   AND (t.id IS NULL OR (t.request_id <> r.request_id
        AND (SELECT workflow_type FROM workflow_instances i WHERE i.id = r.workflow_id) <> 'approval'))"""
REFUSED_WITHOUT_REASON = """
SELECT request_id FROM trigger_requests
 WHERE status IN ('rejected', 'superseded') AND NOT (result ? 'code' AND result ? 'message')"""
# One agent fires on an instance, so its sequence numbers are the order in which its triggers were accepted.
# What was held for an approval comes later, on purpose, and what effects report comes from another connection.
OUT_OF_ORDER = """
SELECT workflow_id, request_id FROM (
       SELECT t.workflow_id, t.request_id, r.seq,
              lag(r.seq) OVER (PARTITION BY t.workflow_id ORDER BY t.seq) AS before
         FROM workflow_transitions t JOIN trigger_requests r USING (request_id)
        WHERE r.origin = 'agent' AND r.held_by IS NULL) AS moves
 WHERE seq < before"""
REPORTS = """
SELECT e.id::text, e.token, array_agg(r.request_id) FILTER (WHERE r.request_id IS NOT NULL)
  FROM effects e LEFT JOIN trigger_requests r
    ON r.workflow_id = e.workflow_id AND starts_with(r.request_id, 'interlock:' || e.id)
 WHERE e.done_trigger IS NOT NULL GROUP BY e.id"""
COMMIT_ORDER = "(context->>'xid')::bigint, (context->>'position')::bigint"
NEWEST_EVENT = "SELECT xid::text || '-' || position FROM workflow_transitions ORDER BY xid DESC, position DESC LIMIT 1"


def assert_promises_kept(installation: Installation, accepted: Mapping[str, UUID]) -> None:
    """Wait until everything is decided, then check all of it, also what earlier tests left."""
    settle(installation)
    assert_nothing_lost(installation, accepted)
    assert_exactly_once(installation)
    assert installation.sql(OUT_OF_ORDER) == []
    assert_history_whole(installation)
    assert_no_stale_report(installation)
    assert_relayed(installation)
    assert_journaled(installation)


def settle(installation: Installation) -> None:
    """Wait until every trigger is decided and every effect done, by any test."""

    def settled() -> bool:
        left = installation.sql(AT_WORK)
        assert not left, f"still at work: {left}"
        return True

    eventually(settled, timeout=SETTLE_SECONDS)


def assert_nothing_lost(installation: Installation, accepted: Mapping[str, UUID]) -> None:
    """Each trigger whose acceptance was told is there, decided."""
    known = dict(installation.sql("SELECT request_id, workflow_id FROM trigger_requests"))
    assert {request_id: known.get(request_id) for request_id in accepted} == dict(accepted)
    assert installation.sql(UNSETTLED) == []


def assert_exactly_once(installation: Installation) -> None:
    """One event for each applied request and one applied request for each event; a reason for each refusal."""
    assert installation.sql(TWICE) == []
    assert installation.sql(MOVED_WITHOUT_REQUEST) == []
    assert installation.sql(APPLIED_WITHOUT_MOVE) == []
    assert installation.sql(REFUSED_WITHOUT_REASON) == []


def assert_history_whole(installation: Installation) -> None:
    """Every chain, gap and move, recomputed."""
    with installation.client() as client:
        verdict = verify.verify(client.runtime.database)
    assert verdict.ok, verdict.problems[:5]


def assert_no_stale_report(installation: Installation) -> None:
    """An effect was finished under its newest token, and told once.

    A process that stood still for longer than its lease may arrive after a newer one: its token says so.
    """
    for effect, token, told in installation.sql(REPORTS):
        assert told == [f"interlock:{effect}:{token}"]
    finished = dict(installation.sql("SELECT id::text, token FROM effects WHERE status = 'done' AND name = 'notice'"))
    arrivals = sorted(installation.receiver.arrivals, key=lambda each: each.effect)
    newest = {effect: max(each.token for each in seen) for effect, seen in groupby(arrivals, lambda each: each.effect)}
    assert {effect: newest.get(effect) for effect in finished} == finished


def assert_relayed(installation: Installation) -> None:
    """The stream reaches the newest event, and holds none twice."""
    with installation.client() as client:
        redis = client.runtime.redis
        assert redis is not None
        newest = installation.sql(NEWEST_EVENT)[0][0]
        eventually(lambda: redis.xrevrange(STREAM, count=1)[0][0].decode() == newest, timeout=SETTLE_SECONDS)
        events = [fields[b"event_id"] for _, fields in redis.xrange(STREAM)]
    assert len(events) == len(set(events))


def assert_journaled(installation: Installation) -> None:
    """The journal has every event exactly once, in commit order, and nothing in it is wrong."""
    with installation.client() as client:
        directory = client.runtime.settings.state_directory
        history = [row[0] for row in installation.sql("SELECT hash FROM events ORDER BY " + COMMIT_ORDER)]
        eventually(lambda: len(journaled(directory)) >= len(history), timeout=SETTLE_SECONDS)
        assert journaled(directory)[: len(history)] == history
        wrong = [each for each in validate(files(directory), client.runtime.catalogue) if not isinstance(each, int)]
    assert wrong == []


def journaled(directory: Path) -> list[str]:
    """The hashes of the journal's events, in its order."""
    return [json.loads(line)["hash"] for path in files(directory) for line in path.read_bytes().splitlines()]
