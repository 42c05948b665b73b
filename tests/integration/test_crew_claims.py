"""Claims: whose task it is. One worker each, by fairness and fit; a claim that no longer counts reports nothing."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import Connection, RowMapping

from interlock.db.connection import transaction
from interlock.db.orchestration import claims as crew
from interlock.workers.client.client import Client
from interlock.workers.pool import claims
from interlock.workers.pool.claims import StaleClaim
from interlock.workers.pool.registration import AGENT, WorkerDescription, register
from interlock.workers.pool.report import failure
from interlock.workers.runtime import Runtime
from tests.crewing import DONE, Site, finish, hand, look_at_runs, row, take
from tests.driving import applied, drain_all, make_due, state, trail
from tests.rights import fire, known, remember

pytestmark = pytest.mark.integration


# The way of one task ------------------------------------------------------------------------------------------------


def test_a_claimed_task_runs_in_its_workers_name(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]"
) -> None:
    (task,) = site.queue()
    worker = hand(runtime, "W")
    claim = take(runtime, worker)
    assert (claim.task_id, claim.worker_id, claim.kind) == (task, worker, "command")
    found = row(dba, "tasks", task)
    assert (found["state"], found["worker_id"]) == ("running", worker)
    assert state(client, worker) == "busy"
    assert row(dba, "workers", worker)["current_load"] == 1
    said = client.history(task)[-1]["metadata"]
    assert (said["worker"], said["claim"], said["worker_id"]) == ("W", claim.id, str(worker))


def test_a_finished_task_frees_its_worker(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]"
) -> None:
    (task,) = site.queue()
    worker = hand(runtime)
    finish(runtime, take(runtime, worker))
    assert state(client, task) == "completed"
    assert row(dba, "tasks", task)["exit_code"] == 0
    assert state(client, worker) == "idle"
    assert row(dba, "workers", worker)["current_load"] == 0
    assert trail(client, worker) == ["registration_complete", "task_assigned", "task_completed"]


def test_a_failed_task_is_tried_again_while_it_has_retries(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]"
) -> None:
    task, last = site.queue(2, max_retries=1)
    dba.execute("UPDATE tasks SET retry_count = 1 WHERE task_id = %s", (last,))
    worker = hand(runtime)
    for _ in range(2):
        finish(runtime, take(runtime, worker), failure("it broke"))
    assert (state(client, task), state(client, last)) == ("retrying", "failed")
    assert row(dba, "tasks", task)["last_error"] == "it broke"


def test_a_worker_is_busy_exactly_when_it_can_take_no_more(runtime: Runtime, client: Client, site: Site) -> None:
    site.queue(3)
    worker = hand(runtime, max_concurrent_tasks=2)
    first = take(runtime, worker)
    assert state(client, worker) == "idle"
    second = take(runtime, worker)
    assert state(client, worker) == "busy"
    assert claims.take(runtime, known(worker)) is None
    finish(runtime, first)
    assert state(client, worker) == "idle"
    take(runtime, worker)
    finish(runtime, second)
    assert trail(client, worker)[1:] == ["task_assigned", "task_completed"] * 2


def test_a_report_may_come_before_anyone_applied_what_the_claim_fired(
    runtime: Runtime, client: Client, site: Site
) -> None:
    site.queue()
    worker = hand(runtime)
    claim = claims.take(runtime, known(worker))
    assert claim is not None
    claims.finish(runtime, known(worker), claim.token, DONE)
    drain_all(runtime)
    assert state(client, worker) == "idle"
    assert [each["status"] for each in client.show(worker)["requests"]] == ["applied"] * 3


# Fencing ------------------------------------------------------------------------------------------------------------


def test_a_stale_claim_cannot_finish_a_task(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]"
) -> None:
    (task,) = site.queue()
    worker = hand(runtime)
    claim = take(runtime, worker)
    client.fire(task, "user_cancelled", by="ann")
    drain_all(runtime)
    assert not claims.is_current(runtime, claim.token)
    with pytest.raises(StaleClaim, match="the claim is no longer valid"):
        finish(runtime, claim)
    drain_all(runtime)
    assert trail(client, task) == ["scheduler_assigned", "worker_started", "user_cancelled"]
    assert (state(client, worker), row(dba, "workers", worker)["current_load"]) == ("idle", 0)


def test_a_report_on_a_task_that_was_given_to_another_is_refused(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]"
) -> None:
    (task,) = site.queue(1, backoff={"base": 0})
    late, other = hand(runtime, "late"), hand(runtime, "other")
    lost = take(runtime, late)
    fire(client, task, "timeout_exceeded", by="ann")
    drain_all(runtime)
    again = take(runtime, other)
    assert again.task_id == task
    assert again.id > lost.id
    with pytest.raises(StaleClaim):
        finish(runtime, lost)
    assert row(dba, "tasks", task)["worker_id"] == other
    finish(runtime, again)
    assert state(client, task) == "completed"


def test_a_report_repeated_is_taken_once(runtime: Runtime, client: Client, site: Site) -> None:
    (task,) = site.queue()
    claim = take(runtime, hand(runtime))
    for _ in range(3):
        finish(runtime, claim)
    assert trail(client, task).count("execution_completed") == 1


def test_nobody_reports_under_anothers_claim(runtime: Runtime, client: Client, site: Site) -> None:
    (task,) = site.queue()
    claim, thief = take(runtime, hand(runtime, "honest")), hand(runtime, "thief")
    with pytest.raises(StaleClaim):
        claims.finish(runtime, known(thief), claim.token, DONE)
    assert claims.is_current(runtime, claim.token)
    finish(runtime, claim)
    with pytest.raises(StaleClaim):
        claims.finish(runtime, known(thief), claim.token, DONE)
    assert state(client, task) == "completed"


def test_a_task_that_left_before_its_start_was_applied_is_let_go(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]"
) -> None:
    (task,) = site.queue()
    worker = hand(runtime)
    client.fire(task, "user_cancelled", by="ann")  # accepted first: applied first
    assert claims.take(runtime, known(worker)) is None
    drain_all(runtime)
    assert state(client, task) == "cancelled"
    assert (state(client, worker), row(dba, "workers", worker)["current_load"]) == ("idle", 0)
    assert dba.execute("SELECT count(*) FROM task_claims WHERE ended_at IS NULL").fetchone() == (0,)


def test_a_claim_keeps_others_off_from_its_first_moment(runtime: Runtime, site: Site) -> None:
    """Before it is committed by its lock, before its start is applied by its row."""
    first, second, third = site.queue(3)
    one, two, three = (hand(runtime, name) for name in "abc")
    with transaction(runtime.database) as connection, transaction(runtime.database) as other:
        begun, beside = _claimed(connection, one), _claimed(other, two)
    with transaction(runtime.database) as connection:
        after = _claimed(connection, three)
    assert begun
    assert beside
    assert after
    assert [begun["task_id"], beside["task_id"], after["task_id"]] == [first, second, third]


# Who gets what ------------------------------------------------------------------------------------------------------


def test_a_worker_gets_only_what_it_can_do(runtime: Runtime, site: Site) -> None:
    (task,) = site.queue(1, required_capabilities=["python", "git"])
    assert claims.take(runtime, known(hand(runtime, "less", capabilities=("python",)))) is None
    assert take(runtime, hand(runtime, "more", capabilities=("git", "python", "shell"))).task_id == task


def test_agents_do_agents_tasks_and_processes_do_commands(runtime: Runtime, site: Site) -> None:
    workstream = site.workstream(site.run())
    command, thought = site.task(workstream), site.task(workstream, kind="agent")
    agent = remember(register(runtime, WorkerDescription("agent", (AGENT,))))
    assert take(runtime, agent).task_id == thought
    assert take(runtime, hand(runtime)).task_id == command


def test_a_workers_affinity_keeps_it_to_its_workstreams(runtime: Runtime, client: Client, site: Site) -> None:
    run = site.run()
    theirs, named, shown = site.workstream(run), site.workstream(run, name="named"), site.workstream(run)
    for each in (theirs, named, shown):
        site.task(each)
    entity = client.show(shown)["entity_id"]
    picky = hand(runtime, affinity={"workstreams": ["named", entity]}, max_concurrent_tasks=3)
    assert {take(runtime, picky).workstream_id for _ in range(2)} == {named, shown}
    assert claims.take(runtime, known(picky)) is None
    assert take(runtime, hand(runtime, "own", affinity={"workstreams": [str(theirs)]})).workstream_id == theirs


@pytest.mark.promise("O8")
def test_a_workers_affinity_keeps_it_to_its_phases(runtime: Runtime, site: Site) -> None:
    """WORKER-3: of workstreams and phases, both must fit."""
    for name in ("design", "release"):
        applied(site.client, site.client.create("phase", name, project=site.project)["id"], "open")
    plain, due = (site.workstream(site.run(), name=name, phase_id=name) for name in ("design", "release"))
    site.task(plain)
    wanted = site.task(due)
    both = hand(runtime, "both", affinity={"phases": ["release"], "workstreams": ["design"]})
    assert claims.take(runtime, known(both)) is None
    assert take(runtime, hand(runtime, "one", affinity={"phases": ["release"]})).task_id == wanted
    late = hand(runtime, "late", affinity={"phases": ["release", "testing"]})
    assert claims.take(runtime, known(late)) is None
    assert take(runtime, hand(runtime, "any")).workstream_id == plain


def test_a_workstreams_affinity_names_its_workers_or_their_type(runtime: Runtime, site: Site) -> None:
    site.task(site.workstream(site.run(), affinity=["chosen", "gpu"]))
    site.task(site.workstream(site.run(), affinity=["chosen", "gpu"]))
    assert claims.take(runtime, known(hand(runtime, "other"))) is None
    take(runtime, hand(runtime, "chosen"))
    take(runtime, hand(runtime, "anybody", worker_type="gpu"))


def test_a_tasks_own_affinity_stands_for_its_workstreams(runtime: Runtime, site: Site) -> None:
    workstream = site.workstream(site.run(), affinity=["chosen"])
    own, theirs = site.task(workstream, affinity=["gpu"]), site.task(workstream)
    assert take(runtime, hand(runtime, "chosen")).task_id == theirs
    assert claims.take(runtime, known(hand(runtime, "other"))) is None
    assert take(runtime, hand(runtime, "anybody", worker_type="gpu")).task_id == own


def test_a_paused_workstream_gives_nothing(runtime: Runtime, client: Client, site: Site) -> None:
    workstream = site.workstream(site.run())
    site.tasks(workstream, 2)
    first = take(runtime, hand(runtime, "first"))
    for trigger in ("first_task_started", "pause"):
        fire(client, workstream, trigger, by="ann")
    _count_started(client, workstream)
    drain_all(runtime)
    assert state(client, workstream) == "paused"
    second = hand(runtime, "second")
    assert claims.take(runtime, known(second)) is None
    client.fire(workstream, "resume", by="ann")
    drain_all(runtime)
    assert take(runtime, second).task_id != first.task_id


def _count_started(client: Client, workstream: UUID) -> None:
    """What the scheduler keeps: one of its tasks runs."""
    with transaction(client.runtime.database) as connection:
        connection.exec_driver_sql(
            "UPDATE interlock.workstream_counts SET running = 1, queued = 1 WHERE ws_id = %s", (workstream,)
        )


def test_priority_then_age(runtime: Runtime, site: Site) -> None:
    workstream = site.workstream(site.run())
    old, young, urgent = site.task(workstream), site.task(workstream), site.task(workstream, priority=5)
    worker = hand(runtime, max_concurrent_tasks=3)
    assert [take(runtime, worker).task_id for _ in range(3)] == [urgent, old, young]


def test_runs_of_one_priority_share_the_workers_and_a_higher_one_goes_first(runtime: Runtime, site: Site) -> None:
    big, small, urgent = site.run(), site.run(), site.run(priority=1)
    for run, count in ((big, 6), (small, 3), (urgent, 1)):
        site.tasks(site.workstream(run), count)
    worker = hand(runtime, max_concurrent_tasks=10)
    order = [take(runtime, worker).run_id for _ in range(10)]
    assert order[0] == urgent
    assert order[1:] == [big, small] * 3 + [big] * 3


def test_a_claim_reads_a_few_rows_however_long_the_queue(
    runtime: Runtime, site: Site, dba: "psycopg.Connection[Any]"
) -> None:
    for _ in range(3):
        site.queue(700)
    worker = hand(runtime)
    for prepare in ("SELECT", "ANALYZE"):  # whether PostgreSQL knows the tables or not
        dba.execute(prepare)
        with transaction(runtime.database) as connection:
            text = f"EXPLAIN (ANALYZE, FORMAT JSON) {crew.sql('claim_task')}"
            ((said,),) = connection.exec_driver_sql(text, {"worker_id": worker, "secret": known(worker).secret}).all()
            connection.rollback()
        read = [node for node in _nodes(said[0]["Plan"]) if node.get("Relation Name") == "tasks"]
        assert [(node["Index Name"], node["Actual Rows"]) for node in read] == [("tasks_queued", 1)]


def _claimed(connection: Connection, worker: UUID) -> RowMapping | None:
    return crew.claim(connection, worker, known(worker).secret)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


@pytest.mark.promise("O1")
def test_a_revoked_claim_frees_its_workers_room_at_once(
    runtime: Runtime, client: Client, site: Site, dba: "psycopg.Connection[Any]"
) -> None:
    """Of a full worker and of a half-loaded one, without a word from either."""
    full, half = hand(runtime, "full"), hand(runtime, "half", max_concurrent_tasks=2)
    late, cancelled, _ = site.queue(3)
    lost = [take(runtime, full), take(runtime, half)]
    assert [claim.task_id for claim in lost] == [late, cancelled]
    assert make_due(dba, "timeout_exceeded") == 2
    dba.execute(
        "UPDATE trigger_requests SET status = 'pending' WHERE status = 'scheduled' AND workflow_id = %s", (late,)
    )
    client.fire(cancelled, "user_cancelled", by="ann")
    look_at_runs(runtime, *lost)
    for worker in (full, half):
        assert (state(client, worker), row(dba, "workers", worker)["current_load"]) == ("idle", 0)
    assert trail(client, full) == ["registration_complete", "task_assigned", "task_completed"]
    again = take(runtime, full)
    for claim in lost:
        with pytest.raises(
            StaleClaim, match="the claim is no longer valid: its task was cancelled, timed out or given"
        ):
            finish(runtime, claim)
    assert (state(client, full), state(client, again.task_id)) == ("busy", "running"), "the dead token moved nothing"
