"""What is added to a run on its way waits for nothing that had ended before it came, whatever the order of events."""

from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.workers.orchestration import scheduler
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.overrides.reset_task import reset_task, skip_step
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from tests.driving import drain_all
from tests.rights import fire
from tests.running import Stage

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
BY_HAND = OverrideOrder("ann", "seen to it myself")
STEPS = ("ends", "other ends", "comes")
# After which of the first two steps the scheduler looks, and how many signals it takes at a time; it looks at the end.
LOOKS = [(False, False, 1), (False, False, 5_000), (True, False, 1), (False, True, 1), (True, True, 5_000)]


@dataclass
class Begun:
    """Two runs of one database: of tasks at work, and of gates."""

    runtime: Runtime
    dba: Dba
    at_work: Stage
    gated: Stage

    def taken_up(self, made: Stage) -> Stage:
        return replace(made, runtime=self.runtime, dba=self.dba, ids=dict(made.ids))


def begin(runtime: Runtime, dba: Dba, _: Path) -> Begun:
    return Begun(runtime, dba, at_work(Stage(runtime, dba)), with_gates(Stage(runtime, dba)))


def at_work(stage: Stage) -> Stage:
    """Three tasks run; nobody works on the last: the workstream stays open."""
    names = ("first", "broken", "other", "last")
    stage.submit({"w": {}}, {name: {"workstream": "w", "max_retries": 0} for name in names})
    stage.start()
    for name in names[:3]:
        stage.begin(name)
    return stage


def with_gates(stage: Stage) -> Stage:
    """A gate that is run, fails, and was run again once (`lint`) or never (`unit`); `u` keeps the workstream open."""
    stage.submit(
        {"w": {}, "open": {}},
        {"t": {"workstream": "w", "blocked_by_gates": ["lint"]}, "u": {"workstream": "w"}, "o": {"workstream": "open"}},
        {"lint": {"workstream": "w", "reruns_left": 1}, "unit": {"workstream": "w"}},
    )
    stage.start()
    stage.fire("lint", "gate_failed", exit_code=1)
    stage.fire("unit", "gate_failed", exit_code=1)
    stage.ids["lint~1"] = again(stage, "lint")
    return stage


@pytest.fixture
def stage(begun: Begun) -> Stage:
    """See `at_work`."""
    return begun.taken_up(begun.at_work)


@pytest.fixture
def gated(begun: Begun) -> Stage:
    """See `with_gates`."""
    return begun.taken_up(begun.gated)


def end(stage: Stage, name: str, *, well: bool) -> None:
    """Let a running task end, and the scheduler hear nothing of it yet."""
    triggers = ("execution_completed", "validation_passed") if well else ("execution_failed",)
    for each in triggers:
        fire(stage.client, stage.ids[name], each, by="test", data={"exit_code": 0 if well else 1})
        drain_all(stage.runtime)


@pytest.mark.parametrize("looks", LOOKS, ids=str)
@pytest.mark.parametrize("order", list(permutations(STEPS)), ids=", ".join)
def test_a_task_that_comes_late_waits_for_nothing_that_has_ended(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...], looks: tuple[bool, bool, int]
) -> None:
    *after, batch = looks
    monkeypatch.setattr(scheduler, "BATCH", batch)
    for step, look in zip(order, (*after, True), strict=True):
        match step:
            case "ends":
                end(stage, "first", well=True)
                end(stage, "broken", well=False)
            case "other ends":
                end(stage, "other", well=True)
            case "comes":
                stage.add("task", "late", workstream="w", depends_on=["first", "other"])
                stage.add("task", "doomed", workstream="w", depends_on=["broken", "other"])
        if look:
            schedule(stage.runtime, stage.run)
    stage.settle()
    assert stage.states("late", "doomed") == {"late": "queued", "doomed": "cancelled"}
    counted = stage.dba.execute(
        "SELECT unmet, dead FROM tasks WHERE task_id = ANY(%s) ORDER BY dead",
        ([stage.ids["late"], stage.ids["doomed"]],),
    )
    assert counted.fetchall() == [(0, 0), (1, 1)]


def test_a_task_that_comes_late_still_waits_for_what_has_not_ended(stage: Stage) -> None:
    end(stage, "first", well=True)
    stage.settle()
    stage.add("task", "late", workstream="w", depends_on=["first", "other"])
    stage.settle()
    assert stage.state("late") == "pending"
    end(stage, "other", well=True)
    stage.settle()
    assert stage.state("late") == "queued"


@pytest.mark.parametrize(
    ("ended", "expected"), [("completed", "ready"), ("skipped", "skipped"), ("cancelled", "cancelled")]
)
def test_a_workstream_that_comes_late_waits_for_none_that_has_ended(
    runtime: Runtime, dba: Dba, ended: str, expected: str
) -> None:
    stage = Stage(runtime, dba)
    stage.submit({"a": {}, "open": {}}, {"a1": {"workstream": "a"}, "o1": {"workstream": "open"}})
    if ended == "skipped":
        stage.fire("a", "skip", reason="left out")
    stage.start()
    if ended == "completed":
        stage.work("a1")
        stage.land()
    elif ended == "cancelled":
        stage.fire("a", "cancel", reason="by hand")
    assert stage.state("a") == ended
    stage.add("workstream", "late", depends_on=["a"], task_count=1)
    stage.add("task", "late1", workstream="late")
    stage.settle()
    assert stage.state("late") == expected


def test_a_task_added_while_its_workstream_is_planned_does_not_keep_it_there(runtime: Runtime, dba: Dba) -> None:
    stage = Stage(runtime, dba)
    stage.submit({"w": {}}, {"a": {"workstream": "w"}})
    stage.settle()
    stage.add("task", "late", workstream="w")
    stage.start()
    stage.work("a")
    assert stage.states("w", "late") == {"w": "executing", "late": "queued"}
    stage.succeed("late")


def again(stage: Stage, name: str) -> Any:
    """What was made in the place of another."""
    query = "SELECT source_id FROM workflow_links WHERE target_id = %s AND role = 'retry_of'"
    found = stage.dba.execute(query, (stage.ids[name],)).fetchone()
    assert found
    return found[0]


def gate(stage: Stage, name: str, **sketch: Any) -> None:
    stage.add("test_gate", name, gate_type="UNIT", **{"workstream": "w", **sketch})


@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize("early", [True, False], ids=["comes before it is decided", "comes after"])
def test_who_comes_late_waits_for_the_gate_that_was_run_again(gated: Stage, early: bool, passes: bool) -> None:
    def come() -> None:
        gated.add("task", "late", workstream="w", blocked_by_gates=["lint"])
        gated.add("task", "judged", workstream="w", gates=["lint"])
        gate(gated, "behind", depends_on=["lint"])
        gated.add("task", "waiting", workstream="w", blocked_by_gates=["behind"])
        gated.add("workstream", "other", gates=["lint"], task_count=1)
        gated.add("task", "o1", workstream="other")
        gated.settle()

    if early:
        come()
        assert gated.states("late", "behind", "waiting") == {
            "late": "pending",
            "behind": "PENDING",
            "waiting": "pending",
        }
    gated.fire("lint~1", "gate_passed" if passes else "gate_failed", exit_code=0 if passes else 1)
    if not early:
        come()
    if passes:
        assert gated.states("t", "late", "behind") == {"t": "queued", "late": "queued", "behind": "RUNNING"}
        gated.fire("behind", "gate_passed", exit_code=0)
        gated.work("judged")
        gated.work("o1")
        gated.land()
        assert gated.states("waiting", "judged", "other") == {
            "waiting": "queued",
            "judged": "completed",
            "other": "completed",
        }
    else:
        gated.work("judged")
        gated.work("o1")
        assert gated.states("t", "late", "waiting", "judged", "other") == {
            "t": "cancelled", "late": "cancelled", "waiting": "cancelled", "judged": "failed", "other": "failed",
        }  # fmt: skip


def test_who_comes_late_does_not_wait_for_a_gate_that_is_lost(gated: Stage) -> None:
    gate(gated, "behind", depends_on=["unit"])
    gate(gated, "far", depends_on=["behind"], workstream="open")
    gated.settle()
    gated.add("task", "late", workstream="w", blocked_by_gates=["unit"])
    gated.add("task", "later", workstream="open", blocked_by_gates=["far"])
    gated.settle()
    assert gated.states("late", "later") == {"late": "cancelled", "later": "cancelled"}


def test_nobody_waits_for_a_gate_that_came_when_its_workstream_had_ended(gated: Stage) -> None:
    gated.fire("w", "user_cancelled")
    gate(gated, "late")
    gated.settle()
    gated.add("task", "waiting", workstream="open", blocked_by_gates=["late"])
    gated.settle()
    assert gated.state("waiting") == "cancelled"


@pytest.mark.parametrize("before", ["no task", "a task that failed"])
def test_a_task_that_comes_late_is_judged_by_a_gate_that_had_nothing_left_to_judge(gated: Stage, before: str) -> None:
    gate(gated, "style", moment="task")
    gate(gated, "types", moment="task", depends_on=["style"])
    if before == "a task that failed":
        gated.add("task", "broken", workstream="w", gates=["style"], max_retries=0)
        gated.settle()
        gated.work("broken", exit_code=1)
    gated.settle()
    gated.add("task", "late", workstream="w", gates=["style", "types"])
    gated.settle()
    gated.work("late")
    assert gated.states("late", "style", "types") == {"late": "validating", "style": "RUNNING", "types": "PENDING"}
    gated.fire("style", "gate_passed", exit_code=0)
    gated.fire("types", "gate_passed", exit_code=0)
    assert gated.state("late") == "completed"


@pytest.mark.parametrize("looked", [True, False], ids=["the scheduler looked between", "it did not"])
def test_who_comes_late_waits_for_the_task_that_took_anothers_place(stage: Stage, looked: bool) -> None:
    end(stage, "broken", well=False)
    stage.ids |= reset_task(stage.runtime, str(stage.ids["broken"]), BY_HAND).made
    skip_step(stage.runtime, str(stage.ids["first"]), BY_HAND)
    if looked:
        stage.settle()
    stage.add("task", "late", workstream="w", depends_on=["broken", "first"])
    stage.settle()
    assert stage.states("broken~2", "late") == {"broken~2": "queued", "late": "pending"}
    row = "SELECT depends_on, unmet, dead FROM tasks WHERE task_id = %s"
    assert stage.dba.execute(row, (stage.ids["late"],)).fetchone() == ([stage.ids["broken~2"]], 1, 0)
    stage.work("broken~2")
    assert stage.state("late") == "queued"
