"""Current state rebuilt from history alone: equal when nobody touched it, else each difference named."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from interlock.cli.audit.audit import app
from interlock.db.audit import rebuild as rebuilding
from interlock.db.audit.rebuild import RebuildFault, rebuild
from interlock.db.connection import transaction
from interlock.workers.client.client import Client
from interlock.workers.overrides import operators
from interlock.workers.overrides.brakes import put_brake
from interlock.workers.overrides.budgets import Budgeted, set_budget
from interlock.workers.overrides.limits import LimitedName, set_limit
from interlock.workers.overrides.narrowing import narrow
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workers.schedules.creating import create_schedule, firing
from tests.driving import UP_TO_REVIEW, applied
from tests.landscape import ONE_LINE, Landscape
from tests.running import Stage
from tests.tampering import unprotected

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]


def begin(runtime: Runtime, dba: Dba, place: Path) -> Stage:
    """A run with what fails and is tried again, a story, and one that was only born."""
    stage = Stage(runtime, dba)
    stage.submit(
        {"w": {}, "v": {"depends_on": ["w"]}},
        {"t": {"workstream": "w", "max_retries": 1}, "u": {"workstream": "w"}, "x": {"workstream": "v"}},
        {"g": {"workstream": "w"}},
    )
    stage.start()
    stage.work("t", exit_code=1, error="it broke")
    stage.work("u")
    stage.fire("g", "gate_passed", exit_code=0, stdout="fine")
    client = Client(runtime)
    applied(client, client.create("story", "S-1")["id"], *UP_TO_REVIEW)
    client.create("story", "S-2")
    return stage


@pytest.fixture
def stage(begun: Stage) -> Stage:
    """What `begin` made."""
    return begun


def differences(runtime: Runtime) -> set[tuple[str, str, str]]:
    done = rebuild(runtime.owned)
    assert done.found == len(done.differences)
    return {(each.table, each.key, each.column) for each in done.differences}


def assert_gone(dba: Dba) -> None:
    assert dba.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'interlock_rebuild'").fetchone() == (0,)


def counts(dba: Dba) -> list[tuple[Any, ...]]:
    """How many rows every table has, to see that the replay wrote nothing."""
    names = dba.execute("SELECT relname FROM pg_stat_user_tables WHERE schemaname = 'interlock' ORDER BY 1").fetchall()
    return [(name, *(dba.execute(f"SELECT count(*) FROM {name}").fetchone() or ())) for (name,) in names]


def test_what_nobody_touched_comes_out_of_history_as_it_stands(runtime: Runtime, stage: Stage, dba: Dba) -> None:
    before = counts(dba)
    done = rebuild(runtime.owned)
    assert done.differences == []
    there = dict(before)
    assert (done.transitions, done.instances) == (there["workflow_transitions"], there["workflow_instances"])
    assert done.rows > done.instances
    assert counts(dba) == before
    assert_gone(dba)


@pytest.mark.usefixtures("ann")
def test_schedules_limits_brakes_and_rights_are_no_obstacle(runtime: Runtime, client: Client) -> None:
    story = client.create("story", "S-1", by="ann")["id"]
    why = OverrideOrder("ann", "a test")
    create_schedule(client, "an-agents", {"every_seconds": 60}, firing(client, story, "block"), by="agent-7")
    set_limit(runtime, LimitedName("key", "a"), why, at_once_most=1)
    set_budget(runtime, Budgeted("actor", "a"), "triggers", why, most=1, per_seconds=60.0)
    put_brake(runtime, "actor", "b", why)
    narrow(runtime, "story", "unblock", ["operator"], why)
    create_schedule(client, "an-operators", {"every_seconds": 60}, firing(client, story, "unblock"), by="ann")
    operators.grant(runtime, ["bob"], by="ann", reason="a test")
    assert rebuild(runtime.owned).differences == []


def test_patches_come_out_of_history_too(runtime: Runtime, dba: Dba, tmp_path: Any) -> None:
    land = Landscape(runtime, dba, tmp_path)
    entry = land.patch(dict(ONE_LINE))
    land.settle()
    land.fire(entry, "accept")
    assert rebuild(runtime.owned).differences == []


def test_each_column_written_past_history_is_named(runtime: Runtime, stage: Stage, dba: Dba) -> None:
    task = stage.ids["t"]
    written = {
        "workflow_instances": {"current_state": "'queued'", "version": "version + 1"},
        "tasks": {
            "state": "'queued'",
            "completed_at": "NULL",
            "retry_count": "0",
            "last_error": "'nothing'",
            "started_at": "started_at + interval '1 s'",
        },
    }
    with unprotected(dba, *written):
        for table, key in (("workflow_instances", "id"), ("tasks", "task_id")):
            change = ", ".join(f"{column} = {value}" for column, value in written[table].items())
            dba.execute(f"UPDATE {table} SET {change} WHERE {key} = %s", (task,))
    expected = {(table, str(task), column) for table, columns in written.items() for column in columns}
    assert differences(runtime) == expected - {("tasks", str(task), "completed_at")}


def test_a_row_that_is_gone_and_one_that_nothing_tells_are_named(runtime: Runtime, stage: Stage, dba: Dba) -> None:
    with unprotected(dba, "test_gates"):
        dba.execute("ALTER TABLE test_gates DISABLE TRIGGER ALL")
        dba.execute("DELETE FROM test_gates WHERE gate_id = %s", (stage.ids["g"],))
        dba.execute(
            "INSERT INTO test_gates (gate_id, gate_type, phase_id, state, command)"
            " VALUES (gen_random_uuid(), 'UNIT', 'default', 'PENDING', '[]')"
        )
    found = rebuild(runtime.owned).differences
    assert [(each.table, each.current, each.rebuilt) for each in found if each.key == str(stage.ids["g"])] == [
        ("test_gates", "no such row", "there")
    ]
    assert ("test_gates", "there", "no such row") in {(each.table, each.current, each.rebuilt) for each in found}


def test_one_at_a_time_and_a_killed_ones_schema_is_no_obstacle(runtime: Runtime, stage: Stage, dba: Dba) -> None:
    dba.execute("CREATE SCHEMA interlock_rebuild AUTHORIZATION interlock_owner")
    dba.execute("CREATE TABLE interlock_rebuild.runs (x integer)")
    dba.execute("SELECT pg_advisory_lock(%s)", (rebuilding.REBUILD_LOCK,))
    with pytest.raises(RebuildFault, match="another rebuild"):
        rebuild(runtime.owned)
    dba.execute("SELECT pg_advisory_unlock(%s)", (rebuilding.REBUILD_LOCK,))
    assert rebuild(runtime.owned).differences == []
    assert_gone(dba)


def test_what_cannot_be_replayed_says_so_and_leaves_nothing(runtime: Runtime, stage: Stage, dba: Dba) -> None:
    with unprotected(dba, "workflow_transitions"):
        dba.execute(
            'UPDATE workflow_transitions SET metadata = \'{"worker_id": "nobody"}\''
            " WHERE workflow_id = %s AND to_state = 'running'",
            (stage.ids["u"],),
        )
    with pytest.raises(RebuildFault, match="cannot be replayed: invalid input syntax for type uuid"):
        rebuild(runtime.owned)
    assert_gone(dba)


def test_nothing_that_the_scratch_schema_cannot_shadow_writes(dba: Dba) -> None:
    """A function with a parsed body is bound to the tables it was made for: none may write."""
    bound = dba.execute(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'interlock'::regnamespace AND prosqlbody IS NOT NULL"
        " AND provolatile = 'v'"
    ).fetchall()
    assert {name for (name,) in bound} <= {"signal"}


def test_the_command_exits_1_with_differences(
    runtime: Runtime, stage: Stage, dba: Dba, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.cli.audit.audit.Client", lambda: Client(Runtime(runtime.settings)))
    right = CliRunner().invoke(app, ["rebuild", "--json"])
    assert (right.exit_code, json.loads(right.stdout)["ok"]) == (0, True)
    with unprotected(dba, "workflow_instances"):
        dba.execute("UPDATE workflow_instances SET version = version + 1 WHERE id = %s", (stage.ids["t"],))
    wrong = CliRunner().invoke(app, ["rebuild"])
    assert wrong.exit_code == 1
    assert wrong.stdout.startswith("1 difference: ")
    with transaction(runtime.database) as connection:
        assert (
            connection.exec_driver_sql("SHOW search_path").scalar_one() == "pg_catalog,pg_temp"
        )  # the connection's own: the session was not left to others
