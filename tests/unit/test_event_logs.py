"""Event logs of the older schemas (EVENT-8): what can have happened, and each thing that cannot."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from interlock.workflows.audit.log_check import Check
from interlock.workflows.catalogue import WORKFLOWS

BEGAN = datetime(2024, 1, 15, 10, 30, tzinfo=UTC)

Move = tuple[str, str, str, str]
# From, to, trigger and severity of each move.
TASK: list[Move] = [
    (source, dest, trigger, severity)
    for source, dest, trigger, severity in map(
        str.split,
        """\
pending     queued      scheduler_assigned   info
queued      running     worker_started       info
running     retrying    execution_failed     warning
retrying    queued      retry_delay_elapsed  info
queued      running     worker_started       info
running     validating  execution_completed  info
validating  completed   validation_passed    info
""".splitlines(),
    )
]


def log(*moves: Move, kind: str = "task", **more: Any) -> list[dict[str, Any]]:
    """Lines of the oldest schema: one entity's moves, a second apart."""
    return [
        {
            "timestamp": (BEGAN + timedelta(seconds=number)).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "event_type": f"{kind}_state_transition",
            "severity": severity,
            "entity_id": f"{kind}-ulid-001",
            "from_state": source,
            "to_state": dest,
            "trigger": trigger,
            "metadata": {"duration_seconds": 45, "retry_count": 0},
        }
        | more
        for number, (source, dest, trigger, severity) in enumerate(moves)
    ]


def findings(lines: list[Any]) -> list[str]:
    """`LINE: what` of each finding."""
    check = Check.against(WORKFLOWS.values())
    texts = (each if isinstance(each, str) else json.dumps(each) for each in lines)
    return [f"{number}: {says}" for number, text in enumerate(texts, 1) for says in check.feed(number, text)]


def changed(number: int, **values: Any) -> list[dict[str, Any]]:
    """The task's log with a line changed (None: without the field)."""
    lines = log(*TASK)
    lines[number - 1] |= values
    lines[number - 1] = {name: value for name, value in lines[number - 1].items() if value is not None}
    return lines


def test_a_log_of_the_oldest_schema_is_right() -> None:
    assert findings(log(*TASK)) == []


def test_the_ssots_schema_is_right_with_all_that_it_may_say() -> None:
    lines = log(
        *TASK,
        event_id="evt_01ARZ3NDEKTSV4RRFFQ69G5FAV",
        entity_type="task",
        operator=None,
        reason=None,
        context={"run_id": "run-001", "workstream_id": "ws-001", "phase_id": "PH-002"},
    )
    assert findings(lines) == []


@pytest.mark.parametrize(
    ("kind", "moves"),
    [
        ("workstream", [("S_PENDING", "S_RUNNING", "start", "info")]),
        ("patch", [("created", "validated", "validation_passed", "info")]),
        ("gate", [("PENDING", "RUNNING", "gate_started", "info")]),
    ],
)
def test_every_machine_and_lineage_is_known_by_the_names_its_events_have(kind: str, moves: Any) -> None:
    says = findings(log(*moves, kind=kind))
    assert not any("no state" in each or "unknown" in each for each in says), says


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"timestamp": "2024-01-15T10:30:01"}, "timestamp is '2024-01-15T10:30:01'; must have a time zone"),
        ({"timestamp": "yesterday"}, "timestamp is 'yesterday'"),
        ({"timestamp": 1_700_000_000}, "timestamp is 1700000000; must be ISO 8601"),
        ({"timestamp": "1700000000"}, "timestamp is '1700000000'; must be ISO 8601"),
        ({"entity_id": "x" * 9 * 10**5, "note": "y" * 10**6}, "note is no field of an event"),
        ({"timestamp": None}, "timestamp is missing"),
        ({"event_type": "task moved"}, "event_type is 'task moved'; must be TYPE_state_transition"),
        ({"event_type": "lorry_state_transition"}, "entity_type 'lorry' is unknown; expected one of api_token"),
        ({"severity": "fatal"}, "severity is 'fatal'"),
        ({"severity": "error"}, "severity is error; expected info (EVENT-3)"),
        ({"entity_id": ""}, "entity_id is ''"),
        ({"entity_id": None}, "entity_id is missing"),
        ({"from_state": None}, "from_state or to_state is missing"),
        ({"note": "x"}, "note is no field of an event"),
        ({"metadata": "x"}, "metadata is 'x'"),
        ({"metadata": {"retry_count": -1}}, "metadata.retry_count is -1; expected a whole number"),
        ({"metadata": {"retry_count": 1.5}}, "metadata.retry_count is Decimal('1.5'); expected a whole number"),
        ({"metadata": {"duration_seconds": -3}}, "metadata.duration_seconds is -3"),
        ({"metadata": {"retry_count": 4, "max_retries": 3}}, "expected at most max_retries, 3"),
        ({"event_id": "evt_1"}, "event_id is 'evt_1'"),
        ({"entity_type": "worker"}, "event_type is task_state_transition, but entity_type is worker"),
        ({"operator": "ann"}, "names the operator ann; its event_type should be manual_override"),
        ({"event_type": "manual_override", "reason": "stuck"}, "a manual override without its operator"),
        ({"event_type": "manual_override", "operator": "ann"}, "a manual override without a reason"),
        ({"to_state": "completed"}, "illegal: queued → completed by worker_started; task"),
        ({"to_state": "flying"}, "has no state 'flying'"),
        ({"trigger": "execution_completed"}, "illegal: queued → running by execution_completed"),
        ({"definition_version": "9.0.0"}, "task 9.0.0 is unknown; expected one of 0.2.0"),
        ({"context": {"seq": 0}}, "context.seq is 0"),
    ],
)
def test_each_thing_that_is_wrong_with_a_line_is_named_with_what_was_expected(
    values: dict[str, Any], expected: str
) -> None:
    says = findings(changed(2, **values))
    assert any(each.startswith("2: ") and expected in each for each in says), says


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', '{"timestamp": '])
def test_a_line_that_is_no_event_is_a_finding_and_the_rest_is_read(text: str) -> None:
    says = findings([text, *log(*TASK)])
    assert [each.split(":")[0] for each in says] == ["1"]


def test_the_first_that_does_not_follow_is_named_with_the_line_it_should_follow() -> None:
    lines = log(*TASK)
    del lines[2]
    assert findings(lines) == ["3: leaves 'retrying', but line 2 entered 'running'; expected that"]


def test_what_has_ended_stays_so() -> None:
    says = findings(log(*TASK, ("completed", "queued", "scheduler_assigned", "info")))
    assert says == ["8: illegal: 'completed' is terminal, and what has ended stays so"]


def test_an_override_may_be_a_move_of_no_trigger_but_not_out_of_an_end() -> None:
    by_hand = (("running", "failed", "manual_override", "warning"), ("failed", "queued", "manual_override", "warning"))
    lines = log(*TASK[:2], *by_hand)
    for number in (2, 3):
        lines[number] |= {"event_type": "manual_override", "operator": "ann", "reason": "stuck"}
    assert findings(lines) == ["4: illegal: 'failed' is terminal, and what has ended stays so"]


def test_time_goes_forward_in_the_file_and_for_each_entity() -> None:
    lines = log(*TASK)
    lines[3]["timestamp"] = "2024-01-15T10:30:01.500Z"
    assert findings(lines) == [
        "4: time goes back: 2024-01-15T10:30:01.500000+00:00 follows 2024-01-15T10:30:02.000000+00:00",
        "4: its entity's time goes back: 2024-01-15T10:30:01.500000+00:00 follows 2024-01-15T10:30:02.000000+00:00"
        " of line 3",
    ]


def test_in_commit_order_the_clock_of_another_entity_may_be_earlier() -> None:
    lines = log(*TASK[:2])
    other = log(*TASK[:1], entity_id="task-2")
    for number, line in enumerate((*lines, *other), 1):
        line["context"] = {"xid": 7, "position": number}
    assert findings([*lines, *other]) == []
    other[0]["context"]["position"] = 2
    assert findings([*lines, *other]) == ["3: commit order goes back: (7, 2) follows (7, 2)"]


def test_versions_are_narrowed_down_by_what_an_entity_did() -> None:
    """`blocked` is in no 0.x version: who was there did not live under it, wherever it stands later."""
    moves = (
        ("pending", "blocked", "dependency_check_failed", "info"),
        ("blocked", "pending", "dependency_satisfied", "info"),
    )
    (illegal,) = findings(log(*moves, ("pending", "completed", "validation_passed", "info")))
    assert illegal.startswith("3: illegal: pending → completed by validation_passed; task 1.0.0, 1.1.0 expects ")


def test_a_named_event_has_the_name_of_its_move_and_older_logs_without_names_are_right() -> None:
    """EVENT-17."""
    into = ("created", "quarantined", "validation_failed", "warning")
    assert findings(log(into, kind="patch")) == []
    assert findings(log(into, kind="patch", named_event="patch_quarantined")) == []
    for wrong in ("patch_rolled_back", "", None):
        assert findings(log(into, kind="patch", named_event=wrong)) == [
            f"1: changed: named_event is {wrong!r}; expected patch_quarantined (EVENT-17)"
        ]
    (said,) = findings(log(TASK[0], named_event="task_blocked"))
    assert said == "1: changed: named_event is 'task_blocked'; expected null (EVENT-17)"


def test_an_older_log_may_have_a_line_of_its_own_for_a_name_which_is_no_move() -> None:
    (move,) = log(("created", "quarantined", "validation_failed", "warning"), kind="patch")
    named = {name: move[name] for name in ("timestamp", "severity", "entity_id")} | {"event_type": "patch_quarantined"}
    assert findings([move, named]) == []
    assert "must be TYPE_state_transition" in findings([move, named | {"event_type": "patch_eaten"}])[0]


def test_a_retry_count_never_falls() -> None:
    lines = log(*TASK)
    lines[3]["metadata"] = {"retry_count": 2}
    assert findings(lines) == ["5: metadata.retry_count is 0, but was 2 before; it never falls"]


def test_what_others_than_interlock_say_contradicts_nothing() -> None:
    said = {"metadata": {"duration_seconds": -1, "retry_count": "a", "exit_code": 2}}
    assert findings(changed(6, **said, authority="holder")) == []
    assert len(findings(changed(6, **said, authority="machinery"))) == 3
    assert len(findings(changed(6, **said, authority="effect"))) == 3


def test_a_success_has_exit_code_0() -> None:
    assert findings(changed(6, metadata={"exit_code": 2})) == [
        "6: metadata.exit_code is 2; execution_completed expects 0"
    ]


def test_a_workstream_is_complete_when_its_tasks_are_at_an_end() -> None:
    context = {"context": {"workstream_id": "workstream-ulid-001"}}
    moves = [
        ("planned", "ready", "all_tasks_created", "info"),
        ("ready", "executing", "first_task_started", "info"),
        ("executing", "validating", "all_tasks_completed", "info"),
        ("validating", "completed", "validation_passed", "info"),
    ]
    workstream = log(*moves, kind="workstream")
    for line in workstream:
        line["timestamp"] = "2024-01-15T11:00:00.000Z"
    assert findings([*log(*TASK, **context), *workstream]) == []
    assert findings([*log(*TASK[:6], **context), *workstream]) == [
        "10: workstream completed while its task task-ulid-001 is in 'validating'; expected it to have ended"
    ]


def test_a_gap_in_what_an_entity_counts_and_a_beginning_elsewhere_show() -> None:
    lines = log(*TASK)
    for number, line in enumerate(lines, 2):
        line["context"] = {"seq": number}
    assert findings(lines) == []  # a file may begin later
    lines[3]["context"]["seq"] = 9
    assert findings(lines) == [
        "4: gap: seq 9 follows 4 of line 3; expected 5",
        "5: gap: seq 6 follows 9 of line 4; expected 10",
    ]
    (line, *_) = log(*TASK[1:2], context={"seq": 1})
    assert findings([line]) == ["1: is the first, but leaves 'queued'; expected pending"]


@pytest.mark.parametrize("digits", ["9" * 5_000, "1e130000"])
def test_a_count_too_long_to_be_printed_is_a_finding(digits: str) -> None:
    lines = [each | {"context": {"seq": number}} for number, each in enumerate(log(*TASK), 1)]
    texts = [json.dumps(each) for each in lines]
    texts[1] = texts[1].replace('"seq": 2', f'"seq": {digits}')
    assert findings(texts)[0].startswith("2: context.seq is ")


def test_an_error_is_an_event_and_no_move() -> None:
    line = {"timestamp": "2024-01-15T10:30:00Z", "event_type": "error", "severity": "error", "entity_id": "task-1"}
    assert findings([line]) == []
