"""Event logs that somebody else wrote, checked line by line; and the journal, which somebody may have changed."""

import gzip
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from hypothesis import strategies as st

from interlock.db.audit.verify import Verdict
from interlock.workers.audit import journal_checks, log_validation
from interlock.workers.relay.journal_tail import read_tail
from interlock.workflows.audit.events import born, canonical, chained
from interlock.workflows.catalogue import WORKFLOWS
from tests.fuzz.door import Door, Ground, Target, overwrite
from tests.fuzz.shapes import lines, written

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
MOVES = (("analysis", "design", "design_complete", "info"), ("design", "blocked", "block", "warning"))


def events() -> list[dict[str, object]]:
    """A story's two events as the journal tells them, their hashes right."""
    found: list[dict[str, object]] = []
    for seq, (source, dest, trigger, severity) in enumerate(MOVES, 1):
        row = {
            "id": UUID(int=seq),
            "metadata": {"why": "x", "n": [1, 2.5]},
            "created_at": BEGAN + timedelta(seconds=seq),
            "workflow_type": "story",
            "severity": severity,
            "entity_id": "S-1",
            "from_state": source,
            "to_state": dest,
            "trigger": trigger,
            "triggered_by": "ann",
            "request_id": f"r-{seq}",
            "authority": "anyone",
            "proof": None,
            "login": "ann",
            "definition_version": "1.0.0",
            "project": UUID(int=7),
            "workflow_id": UUID(int=8),
            "seq": seq,
            "xid": 700 + seq,
            "position": seq,
            "run_id": None,
            "workstream_id": None,
            "phase_id": None,
            "named_event": None,
            "prev_hash": b"",
            "hash": b"",
            "created_by": "ann",
            "born_at": BEGAN,
            "born_version": "1.0.0",
            "context_sha256": bytes(32),
            "bodies": {"commands": "0b"},
            "born_proof": None,
        }
        event = canonical(row)
        event["prev_hash"] = found[-1]["hash"] if found else born(event)
        event["hash"] = chained(event)
        found.append(event)
    return found


OLDEST = {
    "timestamp": "2024-01-15T10:30:00.000Z",
    "event_type": "task_state_transition",
    "severity": "info",
    "entity_id": "task-1",
    "from_state": "pending",
    "to_state": "queued",
    "trigger": "scheduler_assigned",
    "metadata": {"duration_seconds": 45, "retry_count": 0, "max_retries": 3, "exit_code": 0},
    "context": {"workstream_id": "w"},
}
OVERRIDE = OLDEST | {"event_type": "manual_override", "operator": "ann", "reason": "x", "entity_type": "task"}
SOUND = b"".join(written(each) + b"\n" for each in events())


def _opened(ground: Ground) -> Target:
    log, definitions = ground.directory / "transitions.jsonl", list(WORKFLOWS.values())

    def check(data: bytes) -> None:
        overwrite(log, data)
        for finding in log_validation.validate([log], definitions):
            str(finding)
        _journal(log)

    return check


def _journal(log: Path) -> None:
    verdict = Verdict()
    list(journal_checks._lines(verdict, journal_checks.Files([log], None), 0))
    with log.open("rb") as opened:
        for cursor in ((0, 0), (701, 1), (2**63, 0)):
            _, whole = read_tail(opened.fileno(), cursor)
            assert 0 <= whole <= os.fstat(opened.fileno()).st_size


WRITTEN = lines(OLDEST, OVERRIDE, *events())

LOGS = Door(
    "logs",
    "Any fault in an event log or a journal, plain or gzipped, is reported as a finding, one a line.",
    _opened,
    WRITTEN | WRITTEN.map(lambda text: gzip.compress(text, mtime=0)) | st.binary(max_size=200),
    (SOUND, written(OLDEST) + b"\n", written(OVERRIDE) + b"\n", gzip.compress(SOUND, mtime=0)),
)
