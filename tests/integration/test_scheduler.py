"""The scheduler on real PostgreSQL: completion is carried up, failure along, and nothing waits for ever (DERIVE-3)."""

import re
from typing import Any

import pytest

from interlock.db.core.requests import partition_of
from interlock.db.core.rounds import PARTITION_LOCK
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.overrides.tasks import unblock_task
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.overrides.workstreams_and_patches import validate_workstream
from tests.rights import fire, operate
from tests.running import Dba, Stage
from tests.stuck import found

pytestmark = pytest.mark.integration
A_GATE_BEFORE_A_TASK = (
    {"a": {}},
    {"t": {"workstream": "a", "blocked_by_gates": ["g"]}},
    {"g": {"workstream": "a", "moment": "start", "reruns_left": 1}},
)


def refused_of_the_scheduler(dba: Dba) -> list[Any]:
    query = "SELECT trigger, result FROM trigger_requests WHERE triggered_by = 'scheduler' AND status = 'rejected'"
    return dba.execute(query).fetchall()


def test_a_run_of_two_workstreams_succeeds(stage: Stage) -> None:
    stage.submit(
        {"a": {}, "b": {"depends_on": ["a"]}},
        {
            "a1": {"workstream": "a"},
            "a2": {"workstream": "a", "depends_on": ["a1"]},
            "b1": {"workstream": "b", "depends_on": ["a1"]},
        },
    )
    stage.start()
    assert stage.states() == {
        "run": "running", "a": "ready", "b": "blocked", "a1": "queued", "a2": "pending", "b1": "pending"
    }  # fmt: skip
    stage.work("a1")
    assert stage.states("a", "a1", "a2", "b1") == {"a": "executing", "a1": "completed", "a2": "queued", "b1": "pending"}
    stage.work("a2")
    assert stage.state("a") == "validating"
    stage.land()
    assert stage.states("a", "b", "b1") == {"a": "completed", "b": "ready", "b1": "queued"}
    stage.work("b1")
    stage.land()
    assert stage.states("b", "run") == {"b": "completed", "run": "succeeded"}


def test_a_critical_failure_ends_the_run_and_cancels_the_rest(stage: Stage) -> None:
    stage.submit(
        {"a": {"critical": True}, "b": {}, "c": {"depends_on": ["a"]}},
        {
            "a1": {"workstream": "a", "critical": True, "max_retries": 0},
            "a2": {"workstream": "a", "depends_on": ["a1"]},
            "a3": {"workstream": "a"},
            "b1": {"workstream": "b"},
            "c1": {"workstream": "c"},
        },
    )
    stage.start()
    stage.begin("a3")
    stage.work("a1", exit_code=1, error="boom")
    assert stage.states() == {
        "run": "failed", "a": "failed", "b": "cancelled", "c": "cancelled",
        "a1": "failed", "a2": "cancelled", "a3": "cancelled", "b1": "cancelled", "c1": "cancelled",
        "worker": "initializing",
    }  # fmt: skip


@pytest.mark.promise("O7")
def test_a_critical_failure_ends_a_paused_workstream_and_its_run_at_once(stage: Stage) -> None:
    stage.submit(
        {"a": {"critical": True}, "b": {}},
        {
            "a1": {"workstream": "a", "critical": True, "max_retries": 0},
            "a2": {"workstream": "a", "max_retries": 0},
            "b1": {"workstream": "b"},
        },
    )
    stage.start()
    stage.begin("a1")
    stage.begin("a2")
    stage.fire("a", "pause")
    stage.fire("a2", "execution_failed", exit_code=1)
    assert stage.states("a", "run") == {"a": "paused", "run": "running"}  # not critical: it waits for `resume`
    stage.fire("a1", "execution_failed", exit_code=1)
    assert stage.states("a", "b", "b1", "run") == {"a": "failed", "b": "cancelled", "b1": "cancelled", "run": "failed"}
    event = stage.client.history(stage.ids["a"])[-1]
    assert (event["from_state"], event["trigger"], event["severity"]) == ("paused", "critical_task_failed", "critical")


def test_a_failure_that_is_not_critical_lets_the_others_go_on(stage: Stage) -> None:
    stage.submit(
        {"a": {}},
        {
            "t1": {"workstream": "a", "max_retries": 0},
            "t2": {"workstream": "a", "depends_on": ["t1"]},
            "t3": {"workstream": "a", "depends_on": ["t2"]},
            "t4": {"workstream": "a"},
        },
    )
    stage.start()
    stage.work("t1", exit_code=3)
    assert stage.states("a", "t1", "t2", "t3", "t4") == {
        "a": "executing", "t1": "failed", "t2": "cancelled", "t3": "cancelled", "t4": "queued"
    }  # fmt: skip
    assert [event["trigger"] for event in stage.client.history(stage.ids["t2"])] == [
        "dependency_check_failed",
        "cancel",
    ]
    stage.work("t4")
    assert stage.states("a", "run") == {"a": "failed", "run": "failed"}  # RUN-4


def test_a_retry_waits_and_comes_back(stage: Stage, dba: Dba) -> None:
    stage.submit({"a": {}}, {"t": {"workstream": "a", "max_retries": 1}})
    stage.start()
    stage.work("t", exit_code=1)
    assert stage.state("t") == "retrying"
    stage.fire("t", "retry_delay_elapsed")
    assert stage.state("t") == "queued"
    stage.work("t", exit_code=1)
    assert stage.states("t", "a", "run") == {"t": "failed", "a": "failed", "run": "failed"}
    assert dba.execute("SELECT retry_count, last_error FROM tasks").fetchone() == (1, "execution_failed")


def test_a_workstream_begins_though_the_task_that_began_has_ended_meanwhile(stage: Stage, dba: Dba) -> None:
    """What the scheduler asked for is applied by a node that reads the counts later."""
    stage.submit({"a": {}}, {f"t{number}": {"workstream": "a"} for number in range(8)})
    stage.start()
    held, began = partition_of(stage.ids["a"]), {"worker_id": str(stage.worker()), "capabilities": []}
    task = next(made for made in map(stage.ids.__getitem__, stage.queued()) if partition_of(made) != held)
    with dba.transaction():
        dba.execute("SELECT pg_advisory_xact_lock(%s, %s)", (PARTITION_LOCK, held))
        for trigger, data in (("worker_started", began), ("user_cancelled", {"reason": "enough"})):
            fire(stage.client, task, trigger, by="test", data=data)
            assert stage.runtime.applier.apply_partition(partition_of(task)).taken == 1
            schedule(stage.runtime, stage.run)
    stage.settle()
    assert stage.state("a") == "executing"
    assert refused_of_the_scheduler(dba) == []


def test_cancelling_a_run_cancels_all_of_it(stage: Stage) -> None:
    stage.submit(
        {"a": {}, "b": {"depends_on": ["a"]}},
        {"a1": {"workstream": "a"}, "a2": {"workstream": "a"}, "b1": {"workstream": "b"}},
    )
    stage.start()
    stage.begin("a1")
    assert stage.fire("run", "cancel", reason="enough") == "applied"
    assert stage.states("run", "a", "b", "a1", "a2", "b1") == {
        "run": "canceled", "a": "cancelled", "b": "cancelled", "a1": "cancelled", "a2": "cancelled", "b1": "cancelled"
    }  # fmt: skip


def test_a_run_canceled_before_it_began_never_starts(stage: Stage, dba: Dba) -> None:
    stage.submit({"a": {}}, {"a1": {"workstream": "a"}})
    stage.settle()
    stage.fire("run", "cancel")
    assert stage.states("run", "a", "a1") == {"run": "canceled", "a": "cancelled", "a1": "cancelled"}
    assert dba.execute("SELECT started_at FROM runs").fetchone() == (None,)  # RUN-7


def test_a_skipped_workstream_skips_its_dependents(stage: Stage) -> None:
    stage.submit(
        {"a": {}, "b": {"depends_on": ["a"]}, "c": {}},
        {"a1": {"workstream": "a"}, "b1": {"workstream": "b"}, "c1": {"workstream": "c"}},
    )
    stage.settle()
    stage.fire("a", "skip")
    stage.start()
    assert stage.states("a", "b", "a1", "b1") == {"a": "skipped", "b": "skipped", "a1": "cancelled", "b1": "cancelled"}
    stage.succeed("c1")


def test_a_gate_before_a_task_runs_first_and_is_run_again(stage: Stage, dba: Dba) -> None:
    stage.submit(*A_GATE_BEFORE_A_TASK)
    stage.start()
    assert stage.states("t", "g") == {"t": "pending", "g": "RUNNING"}
    stage.fire("g", "gate_failed", exit_code=1, stdout="", stderr="no")
    assert stage.states("t", "g") == {"t": "blocked", "g": "FAILED"}
    again = dba.execute("SELECT gate_id, state, reruns_left FROM test_gates WHERE gate_id <> %s", (stage.ids["g"],))
    ((second, state, left),) = again.fetchall()
    assert (state, left) == ("RUNNING", 0)
    stage.fire(second, "gate_passed", exit_code=0, stdout="", stderr="")
    assert stage.state("t") == "queued"


def test_nobody_keeps_a_gate_from_being_run_again_by_taking_its_name(stage: Stage, dba: Dba) -> None:
    stage.submit(*A_GATE_BEFORE_A_TASK)
    stage.start()
    name = stage.client.show(stage.ids["g"])["entity_id"]
    theirs = stage.client.create("test_gate", f"{name}~1", project=stage.project, context={"gate_type": "UNIT"})["id"]
    stage.fire("g", "gate_failed", exit_code=1, stdout="", stderr="no")
    ours = "SELECT gate_id FROM test_gates WHERE gate_id <> ALL(%s)"
    ((second,),) = dba.execute(ours, ([stage.ids["g"], theirs],)).fetchall()
    assert re.fullmatch(rf"{name}~1-[0-9a-f]{{6}}", stage.client.show(second)["entity_id"])
    stage.settle()
    stage.fire(second, "gate_passed", exit_code=0, stdout="", stderr="")
    assert stage.state("t") == "queued"
    assert len(dba.execute(ours, ([stage.ids["g"], theirs],)).fetchall()) == 1


def test_a_gate_that_failed_for_good_fails_what_waits_for_it(stage: Stage) -> None:
    stage.submit(
        {"a": {}},
        {"t": {"workstream": "a", "blocked_by_gates": ["g2"]}, "u": {"workstream": "a"}},
        {
            "g1": {"workstream": "a", "moment": "start"},
            "g2": {"workstream": "a", "moment": "start", "depends_on": ["g1"]},
        },
    )
    stage.start()
    stage.fire("g1", "gate_failed", exit_code=1)
    assert stage.states("g1", "g2", "t") == {"g1": "FAILED", "g2": "BLOCKED", "t": "cancelled"}
    stage.work("u")
    assert stage.states("a", "run") == {"a": "failed", "run": "failed"}


def test_a_tasks_gates_judge_it_after_its_work(stage: Stage) -> None:
    stage.submit(
        {"a": {}},
        {"t": {"workstream": "a", "gates": ["lint", "unit"]}, "u": {"workstream": "a", "gates": ["unit"]}},
        {
            "lint": {"workstream": "a", "moment": "task"},
            "unit": {"workstream": "a", "moment": "task", "depends_on": ["lint"]},
        },
    )
    stage.start()
    stage.work("t")
    assert stage.states("t", "lint", "unit") == {"t": "validating", "lint": "RUNNING", "unit": "PENDING"}
    stage.fire("lint", "gate_passed", exit_code=0)
    assert stage.states("unit") == {"unit": "PENDING"}  # u, whom it judges as well, has not worked yet
    stage.work("u")
    assert stage.states("unit") == {"unit": "RUNNING"}
    stage.fire("unit", "gate_passed", exit_code=0)
    assert stage.states("t", "u", "a") == {"t": "completed", "u": "completed", "a": "validating"}


def test_a_final_gate_judges_the_workstream(stage: Stage) -> None:
    stage.submit(
        {"a": {"gates": ["final"]}}, {"t": {"workstream": "a"}}, {"final": {"workstream": "a", "moment": "final"}}
    )
    stage.start()
    stage.work("t")
    assert stage.states("a", "final") == {"a": "validating", "final": "RUNNING"}
    stage.fire("final", "gate_failed", exit_code=2)
    assert stage.states("a", "run") == {"a": "failed", "run": "failed"}


def _submit_a_gate_for_others(stage: Stage) -> None:
    """`before`, a gate of `a` before a task of `b`, waits for one that judges a task of `c`; `last` of `a` for it."""
    stage.submit(
        {"a": {"gates": ["before", "last"]}, "b": {}, "c": {}},
        {
            "mine": {"workstream": "a"},
            "blocked": {"workstream": "b", "blocked_by_gates": ["before"]},
            "judged": {"workstream": "c", "gates": ["lint"]},
        },
        {
            "lint": {"workstream": "c", "moment": "task"},
            "before": {"workstream": "a", "moment": "start", "depends_on": ["lint"]},
            "last": {"workstream": "a", "moment": "final", "depends_on": ["before"]},
        },
    )


@pytest.mark.parametrize("passes", [True, False])
def test_a_gate_before_tasks_of_others_runs_though_its_own_workstream_has_worked(stage: Stage, passes: bool) -> None:
    _submit_a_gate_for_others(stage)
    stage.start()
    stage.work("mine")
    assert stage.states("a", "before", "blocked") == {"a": "validating", "before": "PENDING", "blocked": "pending"}
    stage.work("judged")
    stage.fire("lint", "gate_passed", exit_code=0)
    assert stage.states("a", "before", "last") == {"a": "validating", "before": "RUNNING", "last": "PENDING"}
    stage.fire("before", "gate_passed" if passes else "gate_failed", exit_code=0 if passes else 1)
    if passes:
        stage.fire("last", "gate_passed", exit_code=0)
        stage.work("blocked")
        stage.land()
    else:
        stage.land()
        assert stage.states("a", "blocked") == {"a": "failed", "blocked": "cancelled"}
    assert stage.state("run") == ("succeeded" if passes else "failed")


@pytest.mark.parametrize("result", ["gate_passed", "gate_failed"])
def test_a_workstream_waits_for_a_gate_that_others_need_though_its_own_task_does_no_longer(
    stage: Stage, dba: Dba, result: str
) -> None:
    stage.submit(
        {"a": {"gates": ["before"]}, "b": {}},
        {
            "mine": {"workstream": "a", "blocked_by_gates": ["before"]},
            "blocked": {"workstream": "b", "blocked_by_gates": ["before"]},
        },
        {"before": {"workstream": "a", "moment": "start", "reruns_left": 1}},
    )
    stage.start()
    stage.starts_gates = False
    stage.fire("before", "gate_failed", exit_code=1)
    operate(stage.runtime, "ann")
    unblock_task(stage.runtime, str(stage.ids["mine"]), OverrideOrder("ann", "it can go on without"))
    stage.settle()
    stage.work("mine")
    told = found(stage.runtime, stage.ids["a"], everything=True)
    assert told.reason == "it waits for test_gate before~1 (PENDING)"
    stage.starts_gates = True
    stage.settle()
    (again,) = dba.execute("SELECT gate_id FROM test_gates WHERE state = 'RUNNING'").fetchone() or ()
    stage.fire(again, result, exit_code=int(result == "gate_failed"))
    stage.land()
    ends = ("completed", "queued") if result == "gate_passed" else ("failed", "cancelled")
    assert stage.states("a", "blocked") == dict(zip(("a", "blocked"), ends, strict=True))


def test_a_gate_before_tasks_that_was_held_by_a_pause_runs_when_its_workstream_is_validated(stage: Stage) -> None:
    _submit_a_gate_for_others(stage)
    stage.start()
    stage.begin("mine")
    stage.fire("a", "pause")
    stage.work("judged")
    stage.fire("lint", "gate_passed", exit_code=0)
    stage.fire("mine", "execution_completed", exit_code=0)
    assert stage.states("a", "mine", "before") == {"a": "paused", "mine": "completed", "before": "PENDING"}
    operate(stage.runtime, "ann")
    validate_workstream(stage.runtime, str(stage.ids["a"]), OverrideOrder("ann", "it is done"))
    stage.settle()
    assert stage.states("a", "before") == {"a": "validating", "before": "RUNNING"}


def test_counts_are_what_the_tables_say(stage: Stage, dba: Dba) -> None:
    stage.submit({"a": {}}, {f"t{n}": {"workstream": "a", "depends_on": [f"t{n - 1}"] if n else []} for n in range(6)})
    stage.start()
    stage.work("t0")
    stage.work("t1", exit_code=1)
    counted = dba.execute("SELECT pending, queued, retrying, completed FROM workstream_counts").fetchone()
    found = dict(dba.execute("SELECT state, count(*) FROM tasks GROUP BY 1").fetchall())
    assert counted == tuple(found.get(state, 0) for state in ("pending", "queued", "retrying", "completed"))
    assert dba.execute("SELECT count(*) FROM run_signals").fetchone() == (0,)


def test_nothing_the_scheduler_fires_is_refused(stage: Stage, dba: Dba) -> None:
    stage.submit(
        {"a": {}, "b": {"depends_on": ["a"]}},
        {f"{w}{n}": {"workstream": w, "depends_on": [f"{w}{n - 1}"] if n else []} for w in "ab" for n in range(4)},
    )
    stage.start()
    for name in ("a0", "a1", "a2", "a3"):
        stage.work(name)
    stage.land()
    stage.succeed("b0", "b1", "b2", "b3")
    assert refused_of_the_scheduler(dba) == []
