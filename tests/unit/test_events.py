"""The canonical event: what it says, and that a line of the journal proves itself."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from interlock.workflows.audit.chain import digest
from interlock.workflows.audit.events import born, canonical, chained, event_type, line, micros, timestamp
from interlock.workflows.audit.ids import event_name, event_uuid
from interlock.workflows.input.json_text import printed, read

AT = datetime(2025, 12, 8, 22, 26, 36, 730_001, tzinfo=UTC)


def row(**changed: Any) -> dict[str, Any]:
    made = {
        "id": uuid7(), "workflow_id": uuid7(), "seq": 1, "definition_version": "1.0.0", "from_state": "running",
        "to_state": "completed", "trigger": "validation_passed", "triggered_by": "agent-1", "request_id": None,
        "authority": "machinery", "proof": None, "login": "engine",
        "severity": "info", "metadata": {"b": 1, "aa": "ü"}, "created_at": AT, "xid": 7, "position": 9,
        "workflow_type": "task", "entity_id": "t-1", "project": uuid7(), "created_by": "ann", "born_at": AT,
        "born_version": "1.0.0", "context_sha256": bytes(32), "bodies": None, "born_proof": None, "named_event": None,
        "run_id": None, "workstream_id": None, "phase_id": None,
    } | changed  # fmt: skip
    made.setdefault("metadata_text", printed(made["metadata"]))
    birth = (str(made["workflow_id"]), made["workflow_type"], made["born_version"], made["entity_id"],
             str(made["project"]), made["created_by"], micros(timestamp(made["born_at"])),
             made["context_sha256"].hex(), made["bodies"], made["born_proof"])  # fmt: skip
    made["prev_hash"] = digest(b"", birth)
    fields = (str(made["id"]), str(made["workflow_id"]), str(made["seq"]), made["definition_version"],
              made["from_state"], made["to_state"], made["trigger"], made["triggered_by"], made["request_id"],
              made["authority"], made["proof"], made["login"],
              made["severity"], made["metadata_text"], micros(timestamp(made["created_at"])))  # fmt: skip
    made["hash"] = digest(made["prev_hash"], fields)
    return made


@pytest.mark.parametrize(
    ("workflow_type", "metadata", "expected"),
    [
        ("task", {}, "task_state_transition"),
        ("patch_ledger", {}, "patch_state_transition"),
        ("test_gate", {}, "gate_state_transition"),
        ("story", {"operator": ""}, "story_state_transition"),
        ("task", {"operator": "ann"}, "manual_override"),
    ],
)
def test_the_type_of_an_event_is_as_the_ssot_names_it(
    workflow_type: str, metadata: dict[str, Any], expected: str
) -> None:
    assert event_type(workflow_type, metadata) == expected


def test_a_timestamp_is_utc_with_z_and_its_microseconds_survive() -> None:
    eastern = AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert timestamp(eastern) == "2025-12-08T22:26:36.730001Z"
    assert micros(timestamp(eastern)) == "1765232796730001"


def test_an_event_has_what_the_ssot_asks_for() -> None:
    run, workstream = uuid7(), uuid7()
    metadata = {"operator": "ann", "reason": "stuck", "exit_code": 0}
    made = row(metadata=metadata, run_id=run, workstream_id=workstream, phase_id="PH-002", seq=2)
    event = canonical(made)
    assert event["event_id"] == event_name(made["id"])
    assert (event["event_type"], event["operator"], event["reason"]) == ("manual_override", "ann", "stuck")
    assert event["context"] == {
        "project": str(made["project"]), "workflow_id": str(made["workflow_id"]), "seq": 2,
        "xid": 7, "position": 9, "run_id": str(run), "workstream_id": str(workstream), "phase_id": "PH-002",
    }  # fmt: skip
    assert "birth" not in event
    assert json.loads(line(made)) == event


def test_a_line_proves_itself_digits_and_all() -> None:
    text = '{"b": 1.50, "aa": [1, null, true, "\\u0001\\n\\"\\\\ü\u2028"], "é": 0.0000001, "big": 123456789012345678.1}'
    made = row(metadata=json.loads(text), metadata_text=text)
    event = read(line(made))
    assert event["metadata"]["b"] == Decimal("1.50")
    assert chained(event) == event["hash"]
    assert born(event) == event["prev_hash"]
    event["metadata"]["b"] = Decimal("1.5")
    assert chained(event) != event["hash"]


def test_a_line_is_one_line() -> None:
    assert "\n" not in line(row(metadata={"a": "x\ny\r"}, entity_id="e\n1"))


def test_an_events_name_is_its_uuid() -> None:
    for made in (uuid7(), UUID(int=0), UUID(int=2**128 - 1)):
        assert event_uuid(event_name(made)) == made
    for wrong in ("evt_", "evt_" + "U" * 26, "abc", event_name(uuid7())[4:]):
        with pytest.raises(ValueError, match=r"."):
            event_uuid(wrong)
