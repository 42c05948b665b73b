"""What follows from a claim or a report is applied in its commit, if nobody else is at it; else the nodes do it."""

from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from sqlalchemy import Connection, text

from interlock.db.core.requests import partition_of
from interlock.db.core.rounds import PARTITION_LOCK
from interlock.db.orchestration.scheduling import RUN_LOCK
from interlock.workers.engine.applier import Applier
from interlock.workers.orchestration.scheduler import at_once
from interlock.workers.pool import claims
from interlock.workers.pool.claims import Claim
from interlock.workers.pool.report import Report
from interlock.workers.runtime import Runtime
from tests.crewing import DONE, hand
from tests.driving import make_due, state, swept
from tests.rights import fire, known
from tests.running import Dba, Stage
from tests.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def stage(runtime: Runtime, dba: Dba) -> Stage:
    """A run of two tasks, of which the second waits for the first; the first is queued."""
    made = Stage(runtime, dba)
    made.submit({"w": {}}, {"a": {"workstream": "w"}, "b": {"workstream": "w", "depends_on": ["a"]}})
    made.start()
    return made


@pytest.fixture
def claim(stage: Stage) -> Claim:
    """The first task, claimed; its workstream is executing, and everything is counted."""
    of_tasks = {partition_of(stage.ids[name]) for name in ("a", "b")}
    names = (f"hand-{number}" for number in count())
    worker = next(made for name in names if partition_of(made := hand(stage.runtime, name)) not in of_tasks)
    taken = claims.take(stage.runtime, known(worker))
    assert taken is not None
    stage.settle()
    return taken


def finish(stage: Stage, claim: Claim) -> None:
    claims.finish(stage.runtime, known(claim.worker_id), claim.token, DONE)


def states(stage: Stage, claim: Claim) -> tuple[str, str, str]:
    """Of both tasks, and of the worker."""
    return (
        state(stage.client, stage.ids["a"]),
        state(stage.client, stage.ids["b"]),
        state(stage.client, claim.worker_id),
    )


def commits(stage: Stage, *triggers: str) -> set[str]:
    """The transactions that made the last moves by these triggers."""
    query = """SELECT DISTINCT ON (trigger) xid::text FROM workflow_transitions
                WHERE trigger = ANY (%s) ORDER BY trigger, position DESC"""
    found = [xid for (xid,) in stage.dba.execute(query, (list(triggers),))]
    assert len(found) == len(triggers)
    return set(found)


def test_a_task_of_a_chain_costs_two_commits_and_no_message(stage: Stage, claim: Claim) -> None:
    """DERIVE-12: one commit claims and starts it; one takes its report, completes it and queues the next."""
    assert len(commits(stage, "worker_started", "task_assigned")) == 1
    finish(stage, claim)
    assert states(stage, claim) == ("completed", "queued", "idle")
    together = ("execution_completed", "task_completed", "validation_passed", "scheduler_assigned")
    assert len(commits(stage, *together)) == 1
    assert stage.dba.execute("SELECT count(*) FROM trigger_requests WHERE status = 'pending'").fetchone() == (0,)
    assert stage.dba.execute("SELECT count(*) FROM run_signals").fetchone() == (0,)


def test_what_completes_a_task_comes_with_its_report(stage: Stage, claim: Claim) -> None:
    """DERIVE-12: nothing has to judge it, so both are accepted together, and the second one stands behind the first."""
    with stage.dba.transaction():
        stage.dba.execute("SELECT pg_advisory_xact_lock(%s, %s)", (PARTITION_LOCK, partition_of(stage.ids["a"])))
        finish(stage, claim)
        accepted = "SELECT trigger, bound_version FROM trigger_requests WHERE workflow_id = %s AND status = 'pending'"
        found = stage.dba.execute(accepted + " ORDER BY seq", (stage.ids["a"],)).fetchall()
    assert found == [("execution_completed", 2), ("validation_passed", 3)]
    stage.settle()
    assert states(stage, claim)[:2] == ("completed", "queued")


def test_a_report_that_is_refused_completes_nothing(stage: Stage, claim: Claim) -> None:
    claims.finish(stage.runtime, known(claim.worker_id), claim.token, Report("execution_completed", {"exit_code": 3}))
    stage.settle()
    ended = "SELECT trigger, status FROM trigger_requests WHERE workflow_id = %s AND trigger = ANY (%s) ORDER BY seq"
    triggers = ["execution_completed", "validation_passed"]
    found = stage.dba.execute(ended, (stage.ids["a"], triggers)).fetchall()
    assert found == [("execution_completed", "rejected"), ("validation_passed", "superseded")]
    assert states(stage, claim) == ("running", "pending", "idle")


@pytest.mark.parametrize("busy", ["the partition of the task", "the partition of the next", "the run"])
def test_a_report_waits_for_nobody_and_the_nodes_do_what_is_left(stage: Stage, claim: Claim, busy: str) -> None:
    lock = {
        "the partition of the task": (PARTITION_LOCK, partition_of(stage.ids["a"])),
        "the partition of the next": (PARTITION_LOCK, partition_of(stage.ids["b"])),
        "the run": (RUN_LOCK, stage.dba.execute("SELECT hashtext(%s)", (str(stage.run),)).fetchone()[0]),
    }[busy]
    with stage.dba.transaction():
        stage.dba.execute("SELECT pg_advisory_xact_lock(%s, %s)", lock)
        finish(stage, claim)
        assert "queued" not in states(stage, claim)[:2]  # not done yet, and the report did not wait
    stage.settle()
    assert states(stage, claim)[:2] == ("completed", "queued")


def test_a_move_that_cannot_be_written_holds_up_nothing_else(stage: Stage, claim: Claim) -> None:
    """The report is taken, and applied by itself; only what cannot be written stays undone, and is tried again."""
    stage.dba.execute("""
        CREATE FUNCTION no_end() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'not today'; END $$""")
    stage.dba.execute("""
        CREATE TRIGGER no_end BEFORE UPDATE ON tasks FOR EACH ROW
        WHEN (NEW.state = 'completed') EXECUTE FUNCTION no_end()""")
    finish(stage, claim)
    stage.settle()
    assert states(stage, claim) == ("validating", "pending", "idle")
    stage.dba.execute("DROP TRIGGER no_end ON tasks")
    assert make_due(stage.dba, "validation_passed") == 1
    swept(stage.runtime, "dispatch")
    stage.settle()
    assert states(stage, claim) == ("completed", "queued", "idle")


def test_history_keeps_its_order_when_a_move_came_in_between(stage: Stage) -> None:
    """A transaction has its id before it has the partition: what moved an instance in between has a later one."""
    story = stage.client.create("story", "S-1", project=stage.project)["id"]
    fire(stage.client, story, "design_complete", by="ann")
    seen: list[Applier | None] = []

    def act(connection: Connection, applier: Applier | None) -> None:
        seen.append(applier)
        connection.execute(text("SELECT pg_current_xact_id()"))
        if applier is None:
            return
        stage.settle()
        fire(stage.client, story, "start_coding", by="ann")
        applier.apply_for(connection, [story])

    at_once(stage.runtime, act)
    assert seen == [stage.runtime.applier, None]
    stage.settle()
    moves = "SELECT xid::text::bigint FROM workflow_transitions WHERE workflow_id = %s ORDER BY seq"
    first, second = (xid for (xid,) in stage.dba.execute(moves, (story,)))
    assert first < second


def test_history_that_a_dump_brought_along_stops_no_move(stage: Stage) -> None:
    """Its transaction ids are of another server, which may have counted further."""
    story = stage.client.create("story", "S-1", project=stage.project)["id"]
    fire(stage.client, story, "design_complete", by="ann")
    stage.settle()
    stage.dba.execute("ALTER TABLE workflow_transitions DISABLE TRIGGER kept")
    stage.dba.execute("UPDATE workflow_transitions SET xid = '999999999' WHERE workflow_id = %s", (story,))
    stage.dba.execute("ALTER TABLE workflow_transitions ENABLE ALWAYS TRIGGER kept")
    fire(stage.client, story, "start_coding", by="ann")
    stage.settle()
    assert state(stage.client, story) == "implementation"


def test_a_start_that_cannot_be_applied_at_once_is_waited_for(stage: Stage) -> None:
    """Somebody else has the task's partition: the claim is made nevertheless, and its task begun once that is free."""
    worker = known(hand(stage.runtime))
    lock = (PARTITION_LOCK, partition_of(stage.ids["a"]))
    with ThreadPoolExecutor(1) as pool:
        with stage.dba.transaction():
            stage.dba.execute("SELECT pg_advisory_xact_lock(%s, %s)", lock)
            taking = pool.submit(claims.take, stage.runtime, worker)
            waits = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            eventually(lambda: stage.dba.execute(waits).rowcount == 1)
            assert stage.dba.execute("SELECT count(*) FROM task_claims").fetchone() == (1,)
        taken = taking.result(60)
    assert taken is not None
    assert state(stage.client, taken.task_id) == "running"
