"""What is added to a run on its way waits for nothing that had ended before it came, whatever the order of events."""

from itertools import permutations

import pytest

from tests.driving import drain_all
from tests.running import Stage
from workers.orchestration import scheduler
from workers.orchestration.scheduler import schedule
from workers.runtime import Runtime

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"
STEPS = ("ends", "other ends", "comes")
# After which of the first two steps the scheduler looks, and how many signals it takes at a time; it looks at the end.
LOOKS = [(False, False, 1), (False, False, 5_000), (True, False, 1), (False, True, 1), (True, True, 5_000)]


@pytest.fixture
def stage(runtime: Runtime, dba: Dba) -> Stage:
    made = Stage(runtime, dba)
    names = ("first", "broken", "other", "last")  # nobody works on the last: the workstream stays open
    made.submit({"w": {}}, {name: {"workstream": "w", "max_retries": 0} for name in names})
    made.start()
    for name in names[:3]:
        made.begin(name)
    return made


def end(stage: Stage, name: str, *, well: bool) -> None:
    """Let a running task end, and the scheduler hear nothing of it yet."""
    triggers = ("execution_completed", "validation_passed") if well else ("execution_failed",)
    for each in triggers:
        stage.client.fire(stage.ids[name], each, by="test", data={"exit_code": 0 if well else 1})
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
