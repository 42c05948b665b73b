"""The queries of docs/queries.sql run on the tables and views, find what they should, and nothing else."""

import re
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.db.connection import transaction
from interlock.db.operations import invariants
from interlock.workers.client.client import Client
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.overrides.tasks import complete_task
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.overrides.workstreams_and_patches import validate_workstream
from interlock.workers.runtime import Runtime
from tests.crewing import hand, silence
from tests.doctoring import examined
from tests.driving import applied
from tests.landscape import Landscape
from tests.running import Stage

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
FILE = Path(__file__).parents[2] / "docs" / "queries.sql"
QUERIES = {
    name: statement
    for name, statement in re.findall(r"-- name: (\w+) [^\n]*\n(.*?;)", FILE.read_text(encoding="utf-8"), re.DOTALL)
}


def ask(dba: Dba, name: str, **words: object) -> list[tuple[Any, ...]]:
    """Run a query of docs/queries.sql with its placeholders replaced."""
    statement = QUERIES[name]
    for word, value in words.items():
        assert f"'{word.replace('_001', '-001')}'" in statement
        statement = statement.replace(f"'{word.replace('_001', '-001')}'", f"'{value}'")
    return dba.execute(statement).fetchall()  # type: ignore[call-overload, no-any-return]


@pytest.fixture
def stage(runtime: Runtime, dba: Dba) -> Stage:
    made = Stage(runtime, dba)
    made.submit({"w": {}, "v": {}}, {"a": {"workstream": "w"}, "b": {"workstream": "w"}, "c": {"workstream": "v"}})
    made.start()
    return made


def back(dba: Dba, table: str, key: str, ref: UUID, minutes: int, *columns: str) -> None:
    """Let a row be so old."""
    moved = ", ".join(f"{each} = {each} - make_interval(mins => {minutes})" for each in columns)
    dba.execute(f"UPDATE {table} SET {moved} WHERE {key} = %s", (ref,))  # type: ignore[arg-type]


def test_every_query_is_tried_here() -> None:
    tried = Path(__file__).read_text(encoding="utf-8")
    assert len(QUERIES) == FILE.read_text(encoding="utf-8").count("-- name: ")
    assert [name for name in QUERIES if f'"{name}"' not in tried] == []


def test_stuck_workstreams_are_those_that_executed_for_an_hour(stage: Stage, dba: Dba) -> None:
    stage.begin("a")
    stage.begin("c")
    back(dba, "workstreams", "ws_id", stage.ids["w"], 61, "created_at", "updated_at")
    back(dba, "workstreams", "ws_id", stage.ids["v"], 59, "created_at", "updated_at")
    ((ws_id, state, _, hours),) = ask(dba, "stuck_workstreams")
    assert (ws_id, state, float(hours)) == (stage.ids["w"], "executing", pytest.approx(1.02, abs=0.01))


def test_stuck_tasks_are_those_that_ran_for_half_an_hour(stage: Stage, dba: Dba) -> None:
    stage.begin("a")
    stage.begin("c")
    back(dba, "tasks", "task_id", stage.ids["a"], 31, "created_at", "started_at")
    back(dba, "tasks", "task_id", stage.ids["c"], 29, "created_at", "started_at")
    ((task_id, worker_id, state, _, minutes),) = ask(dba, "stuck_tasks")
    assert (task_id, worker_id, state) == (stage.ids["a"], stage.ids["worker"], "running")
    assert 31 <= float(minutes) < 32
    assert ask(dba, "stuck_tasks_of_workstream", WS_ID=stage.ids["w"]) == [(stage.ids["a"],)]
    assert ask(dba, "stuck_tasks_of_workstream", WS_ID=stage.ids["v"]) == []


def test_the_tasks_of_a_workstream_and_how_many_have_not_ended(stage: Stage, dba: Dba) -> None:
    stage.work("a")
    stage.begin("b")
    found = {row[0]: row[1] for row in ask(dba, "tasks_of_workstream", WS_ID=stage.ids["w"])}
    assert found == {stage.ids["a"]: "completed", stage.ids["b"]: "running"}
    assert ask(dba, "unfinished_tasks_of_workstream", WS_ID=stage.ids["w"]) == [(1,)]


def test_the_tasks_of_a_gate_are_those_that_it_judges(runtime: Runtime, dba: Dba) -> None:
    stage = Stage(runtime, dba)
    tasks = {"t": {"workstream": "w", "gates": ["g"]}, "u": {"workstream": "w"}}
    stage.submit({"w": {}}, tasks, {"g": {"workstream": "w", "moment": "task"}})
    assert ask(dba, "tasks_of_gate", GATE_ID=stage.ids["g"]) == [(stage.ids["t"],)]


def test_unresponsive_workers_are_those_not_heard_of_for_two_minutes(runtime: Runtime, dba: Dba) -> None:
    silent, heard = hand(runtime, "silent"), hand(runtime, "heard")
    silence(dba, silent, 121)
    silence(dba, heard, 100)
    ((worker, state, _, minutes),) = ask(dba, "unresponsive_workers")
    assert (worker, state) == (silent, "idle")
    assert float(minutes) >= 2


def test_quarantined_patches_and_the_commit_of_one_that_landed(runtime: Runtime, dba: Dba, tmp_path: Path) -> None:
    landscape = Landscape(runtime, dba, tmp_path)
    committed = landscape.committed_patch()
    bad = landscape.patch("no patch at all", name="bad")
    landscape.settle()
    ((ledger_id, patch_id, reason, _),) = ask(dba, "quarantined_patches")
    assert (ledger_id, patch_id) == (bad, "patch-bad")
    assert reason
    assert [row[1] for row in ask(dba, "named_events")] == ["patch_quarantined"]
    assert ask(dba, "patch_state", LEDGER_ID=committed) == [("committed",)]
    ((standing, _),) = ask(dba, "patch_standing", LEDGER_ID=bad)
    assert standing == "quarantined"
    ((sha,),) = ask(dba, "patch_commit", LEDGER_ID=committed)
    assert re.fullmatch("[0-9a-f]{40}", sha)
    assert ask(dba, "patch_commit", LEDGER_ID=bad) == [(None,)]


def test_a_workstream_s_history_with_how_long_it_took(stage: Stage, dba: Dba) -> None:
    stage.begin("a")
    rows = ask(dba, "transition_history", WS_001="w")
    assert [row[:3] for row in rows] == [
        ("planned", "ready", "all_tasks_created"),
        ("ready", "executing", "first_task_started"),
    ]
    assert all(float(row[4]) >= 0 for row in rows)
    assert ask(dba, "transition_history", WS_001="nobody") == []


def test_failures_are_counted_by_where_they_happened(stage: Stage, dba: Dba) -> None:
    for name in "ab":
        dba.execute("UPDATE tasks SET max_retries = 0 WHERE task_id = %s", (stage.ids[name],))
        stage.work(name, exit_code=1)
    assert ask(dba, "failure_patterns")[0] == ("task", "running", "failed", 2)
    assert ("workstream", "executing", "failed", 1) in ask(dba, "failure_patterns")
    assert not [row for row in ask(dba, "failure_patterns") if row[2] not in ("failed", "quarantined", "abandoned")]


def test_overrides_of_the_last_day_with_who_and_why(stage: Stage, dba: Dba) -> None:
    stage.begin("a")
    stage.work("c")
    assert ask(dba, "manual_overrides") == []
    complete_task(stage.runtime, str(stage.ids["a"]), OverrideOrder("ann", "seen to it"))
    rows = ask(dba, "manual_overrides")
    assert {row[:2] + row[4:6] for row in rows} == {("task", "a", "ann", "seen to it")}
    assert rows[0][2:4] in {("validating", "completed"), ("running", "validating")}


# The oldest lineage ----------------------------------------------------------------------------------------------


@pytest.fixture
def old(runtime: Runtime, project: str) -> Client:
    """A workstream WS-001 of version 0.1.0 with steps s1 and s2, running."""
    client, catalogue = Client(runtime), runtime.catalogue
    made = [Birth(catalogue.get("workstream", "0.1.0"), "WS-001", project, "test", {})]
    made += [
        Birth(catalogue.get("step", "0.1.0"), name, project, "test", {"workstream_id": "WS-001"})
        for name in ("s1", "s2")
    ]
    with transaction(runtime.database) as connection:
        creation.deliver(connection, made)
    applied(client, "WS-001", "start_execution")
    applied(client, "s1", "dependencies_met")
    return client


def test_the_oldest_lineage_answers_under_its_own_names(old: Client, dba: Dba) -> None:
    assert ask(dba, "lineage_state", WS_001="WS-001") == [("S_RUNNING",)]
    assert [row[0] for row in ask(dba, "lineage_stuck_workstreams")] == []
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '61 minutes' WHERE entity_id = 'WS-001'")
    assert [row[0] for row in ask(dba, "lineage_stuck_workstreams")] == ["WS-001"]
    assert [row[:2] for row in ask(dba, "lineage_step_states", WS_001="WS-001")] == [
        ("s1", "S_RUNNING"),
        ("s2", "S_PENDING"),
    ]
    assert [row[:2] for row in ask(dba, "lineage_history", WS_001="WS-001")] == [("S_PENDING", "S_RUNNING")]


def test_a_success_with_a_step_that_has_none_is_found(old: Client, runtime: Runtime, dba: Dba) -> None:
    assert ask(dba, "lineage_inconsistent") == []
    assert broken(runtime) == []
    with as_a_bad_dba(dba):
        dba.execute("UPDATE workflow_instances SET current_state = 'S_SUCCESS' WHERE entity_id = 'WS-001'")
    assert set(ask(dba, "lineage_inconsistent")) == {
        ("WS-001", "S_SUCCESS", "s1", "S_RUNNING"),
        ("WS-001", "S_SUCCESS", "s2", "S_PENDING"),
    }
    assert len(broken(runtime)) == 2


# Entities that contradict each other (LEGACY-8, DERIVE-8) ------------------------------------------------


class as_a_bad_dba:
    """With every trigger of the tables switched off, as a superuser can."""

    TABLES = ("workflow_instances", "workflow_transitions", "workstreams", "tasks", "runs", "test_gates", "workers")

    def __init__(self, dba: Dba) -> None:
        self.dba = dba

    def __enter__(self) -> None:
        for table in self.TABLES:
            self.dba.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")  # type: ignore[arg-type]

    def __exit__(self, *_: object) -> None:
        for table in self.TABLES:
            self.dba.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")  # type: ignore[arg-type]


def broken(runtime: Runtime) -> list[tuple[str, str]]:
    with transaction(runtime.database) as connection:
        return [(row["entity_id"], row["message"]) for row in invariants.broken(connection, limit=100)]


def test_a_completed_workstream_with_a_task_that_is_not_is_found(stage: Stage, runtime: Runtime, dba: Dba) -> None:
    assert broken(runtime) == []
    with as_a_bad_dba(dba):
        ref = (stage.ids["w"],)
        dba.execute("UPDATE workflow_instances SET current_state = 'completed' WHERE id = %s", ref)
        dba.execute("UPDATE workstreams SET state = 'completed', completed_at = now() WHERE ws_id = %s", ref)
    assert broken(runtime) == [
        ("w", "is completed, but its task a is queued"),
        ("w", "is completed, but its task b is queued"),
    ]
    (first, *_) = examined(runtime, "invariants")
    assert (first.level, first.message) == (
        "fail",
        "workstream w is completed, but its task a is queued (WORKSTREAM-2)",
    )


def test_a_typed_row_that_says_another_state_is_found(stage: Stage, runtime: Runtime, dba: Dba) -> None:
    with as_a_bad_dba(dba):
        dba.execute("UPDATE tasks SET state = 'validating' WHERE task_id = %s", (stage.ids["a"],))
    assert broken(runtime) == [("a", "stands in queued, but its typed row says validating")]


def test_a_task_completed_before_its_gate_and_a_run_before_its_workstreams_are_found(
    runtime: Runtime, dba: Dba
) -> None:
    stage = Stage(runtime, dba)
    stage.submit({"w": {}}, {"t": {"workstream": "w", "gates": ["g"]}}, {"g": {"workstream": "w", "moment": "task"}})
    stage.start()
    with as_a_bad_dba(dba):
        for table, key, ref, state in (
            ("tasks", "task_id", stage.ids["t"], "completed"),
            ("runs", "run_id", stage.run, "succeeded"),
        ):
            dba.execute(
                f"UPDATE {table} SET state = %s, completed_at = now() WHERE {key} = %s",  # type: ignore[arg-type]
                (state, ref),
            )
            dba.execute("UPDATE workflow_instances SET current_state = %s WHERE id = %s", (state, ref))
    assert set(broken(runtime)) == {
        ("t", "is completed, but its gate g is PENDING"),
        ("run", "has succeeded, but its workstream w is ready"),
    }


def test_a_workstream_completed_before_its_gate_is_found(runtime: Runtime, dba: Dba) -> None:
    stage = Stage(runtime, dba)
    stage.submit({"w": {"gates": ["g"]}}, {"t": {"workstream": "w"}}, {"g": {"workstream": "w", "moment": "final"}})
    stage.start()
    stage.work("t")
    with as_a_bad_dba(dba):
        ref = (stage.ids["w"],)
        dba.execute("UPDATE workflow_instances SET current_state = 'completed' WHERE id = %s", ref)
        dba.execute("UPDATE workstreams SET state = 'completed', completed_at = now() WHERE ws_id = %s", ref)
    assert broken(runtime) == [("w", "is completed, but its gate g is RUNNING")]


def test_what_an_override_brought_about_is_excused(runtime: Runtime, dba: Dba) -> None:
    stage = Stage(runtime, dba)
    stage.submit({"w": {}}, {"a": {"workstream": "w"}, "b": {"workstream": "w", "max_retries": 0}})
    stage.start()
    stage.work("a")
    stage.begin("b")
    stage.fire("w", "pause")
    stage.fire("b", "execution_failed", exit_code=1)
    validate_workstream(runtime, str(stage.ids["w"]), OverrideOrder("ann", "it was optional"))
    stage.settle()
    stage.land()
    assert (stage.state("b"), stage.state("w")) == ("failed", "completed")
    assert broken(runtime) == []
