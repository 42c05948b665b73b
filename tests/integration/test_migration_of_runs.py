"""What has a typed row moves with it: its worker, its claim, its clock, its run's counts."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from tests import parcels
from tests.driving import applied
from tests.migrating import due_in, move, sound, whys
from tests.parcels import born
from tests.rights import OF_SECRET
from tests.running import Stage

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"


@pytest.fixture
def runtime(make_runtime: Callable[..., Runtime]) -> Runtime:
    return parcels.recorded(make_runtime)


@pytest.fixture
def stage(runtime: Runtime, dba: Dba) -> Stage:
    made = Stage(runtime, dba)
    made.submit(
        {"w": {}},
        {"a": {"workstream": "w"}, "b": {"workstream": "w", "depends_on": ["a"]}, "c": {"workstream": "w"}},
    )
    return made


def test_a_running_task_moves_with_its_worker_its_claim_and_its_clock(stage: Stage, dba: Dba) -> None:
    stage.start()
    stage.begin("a")
    before = dba.execute("SELECT t::text FROM tasks t ORDER BY 1").fetchall()
    deadline = due_in(dba, stage.ids["a"])
    done = move(stage.runtime, "1.1.0", "1.0.0", "task")
    assert (done.moved, done.stays) == (3, [])
    assert dba.execute("SELECT t::text FROM tasks t ORDER BY 1").fetchall() == before
    assert due_in(dba, stage.ids["a"])[-1] - deadline[-1] < timedelta(seconds=2)
    assert stage.fire("a", "execution_completed", exit_code=0) == "applied"
    assert move(stage.runtime, "1.0.0", "1.1.0", "task").moved == 2  # one has completed
    for name in ("c", "b"):
        stage.work(name)
    stage.land()
    assert set(stage.states("a", "b", "c", "w").values()) == {"completed"}
    assert stage.state("run") == "succeeded"
    sound(stage.runtime)


def test_a_state_that_gets_another_name_moves_the_typed_row_and_the_counts(stage: Stage, dba: Dba) -> None:
    stage.start()
    stage.begin("a")
    assert stage.fire("w", "pause") == "applied"
    assert whys(move(stage.runtime, "1.1.0", "1.0.0", "workstream")).keys() == {"w"}
    assert move(stage.runtime, "1.1.0", "1.0.0", "workstream", renamed={"paused": "executing"}).moved == 1
    stage.settle()
    counts = dba.execute("SELECT executing, paused FROM run_counts WHERE run_id = %s", (stage.run,)).fetchone()
    assert counts == (1, 0)
    assert dba.execute("SELECT state FROM workstreams").fetchall() == [("executing",)]
    assert stage.fire("a", "execution_completed", exit_code=0) == "applied"
    stage.succeed("c", "b")
    sound(stage.runtime)


def test_what_a_typed_table_refuses_is_named(client: Client, runtime: Runtime, project: str, dba: Dba) -> None:
    worker = born(runtime, "worker", "1.1.0", "W-1", project, OF_SECRET)
    applied(client, worker, "registration_complete", "suspend")
    dba.execute("ALTER TABLE workers ADD CHECK (state <> 'unresponsive')")
    done = move(runtime, "1.1.0", "1.0.0", "worker", renamed={"suspended": "unresponsive"}, dry_run=True)
    assert "PostgreSQL refuses it" in whys(done)["W-1"][0]
    assert "workers" in whys(done)["W-1"][0]


def test_the_older_lineage_does_not_become_what_has_a_typed_row(runtime: Runtime, project: str) -> None:
    born(runtime, "workstream", "0.2.0", "W-1", project, {"run_id": "R"})
    (why,) = whys(move(runtime, "0.2.0", "1.1.0", "workstream")).values()
    assert any("typed row" in each for each in why)
