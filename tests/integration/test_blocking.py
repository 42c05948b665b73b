"""What a blocked task waits for is in its row and its event, and nowhere once it waits no more (TASK-9)."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.workers.runtime import Runtime
from tests.crewing import row
from tests.running import Stage
from tests.walking import Walker

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]


def blockers(walker: Walker, task: UUID) -> set[UUID]:
    """What the row says, which must be what the last event said."""
    listed = row(walker.dba, "tasks", task)["blocked_by"]
    (said,) = walker.dba.execute(
        "SELECT metadata->'blocked_by' FROM workflow_transitions WHERE workflow_id = %s ORDER BY seq DESC LIMIT 1",
        (task,),
    ).fetchone() or (None,)
    assert sorted(map(str, listed)) == sorted(said or [])
    return set(listed)


def test_a_blocked_task_names_what_stands_in_its_way_until_that_is_done(runtime: Runtime, dba: Dba) -> None:
    walker = Walker(runtime, dba)
    task, gate = walker.get("task"), walker.get("test_gate")
    done, other = walker.at(task, "completed"), walker.born(task)
    before = walker.at(gate, "FAILED")
    made = walker.born(task, depends_on=[str(done), str(other)], blocked_by_gates=[str(before)])
    assert walker.ask(made, "dependency_check_failed", blocked_by="whatever").status == "applied"
    assert blockers(walker, made) == {other, before}
    walker.link(made, "blocked_by_gates", "blocks", walker.at(gate, "PASSED"))
    walker.lead(task, other, "completed")
    assert walker.ask(made, "dependency_satisfied").status == "applied"
    assert blockers(walker, made) == set()


def test_a_queued_task_is_blocked_by_a_gate_that_failed(runtime: Runtime, dba: Dba) -> None:
    """TASK-11."""
    walker = Walker(runtime, dba)
    made = walker.at(walker.get("task"), "queued")
    gate = walker.at(walker.get("test_gate"), "FAILED")
    walker.link(made, "gates", "judges", gate)
    assert walker.ask(made, "dependency_check_failed").status == "applied"
    assert blockers(walker, made) == {gate}


def test_the_scheduler_blocks_with_the_same_list(runtime: Runtime, dba: Dba) -> None:
    stage = Stage(runtime, dba)
    stage.submit(
        {"a": {}},
        {"t": {"workstream": "a", "blocked_by_gates": ["g"]}},
        {"g": {"workstream": "a"}},
    )
    stage.start()
    stage.fire("g", "gate_failed", exit_code=1)
    (said,) = dba.execute(
        "SELECT metadata->'blocked_by' FROM workflow_transitions WHERE workflow_id = %s AND to_state = 'blocked'",
        (stage.ids["t"],),
    ).fetchone() or (None,)
    assert said == [str(stage.ids["g"])]


def test_a_queued_task_that_somebody_blocked_by_hand_goes_on(runtime: Runtime, dba: Dba) -> None:
    """The scheduler never blocks what is queued: every gate before it has passed, and passed it stays."""
    stage = Stage(runtime, dba)
    gates = {"g": {"workstream": "a"}, "after": {"workstream": "a", "moment": "task", "depends_on": ["g"]}}
    stage.submit({"a": {}}, {"t": {"workstream": "a", "gates": ["after"]}}, gates)
    stage.start()
    stage.fire("g", "gate_failed", exit_code=1)
    assert stage.states("t", "after") == {"t": "queued", "after": "BLOCKED"}
    assert stage.fire("t", "dependency_check_failed") == "applied"
    assert stage.state("t") == "queued"


def test_a_cancelled_task_says_when(runtime: Runtime, dba: Dba) -> None:
    walker = Walker(runtime, dba)
    task = walker.get("task")
    cancelled, failed = walker.at(task, "cancelled"), walker.at(task, "failed")
    assert row(dba, "tasks", cancelled)["cancelled_at"] == row(dba, "tasks", cancelled)["completed_at"] is not None
    assert row(dba, "tasks", failed)["cancelled_at"] is None


def test_a_patchs_state_history_tells_each_of_its_moves(runtime: Runtime, dba: Dba) -> None:
    """PATCH-11: from, to, when, with what was said."""
    walker = Walker(runtime, dba)
    made = walker.at(walker.get("patch_ledger"), "verified")
    walker.ask(made, "commit_succeeded", commit_sha="abc123")
    history, kept = dba.execute(
        "SELECT state_history, metadata FROM patch_ledger_entries WHERE ledger_id = %s", (made,)
    ).fetchone() or ([], {})
    told = dba.execute(
        "SELECT from_state, to_state, to_jsonb(created_at) AS timestamp, trigger, metadata FROM workflow_transitions"
        " WHERE workflow_id = %s ORDER BY seq",
        (made,),
    ).fetchall()
    names = ("from_state", "to_state", "timestamp", "trigger", "metadata")
    assert [tuple(each[name] for name in names) for each in history[1:]] == told
    assert (history[0]["from_state"], history[0]["to_state"]) == (None, "created")
    assert kept["commit_sha"] == "abc123"
