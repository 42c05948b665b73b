"""A workstream that failed is done again while its run goes on, and what was given up because of it (WORKSTREAM-15)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.workers.engine import creation
from interlock.workers.overrides.rerun_gate import rerun_gate
from interlock.workers.overrides.reset_task import reset_task, skip_step
from interlock.workers.overrides.retry_workstream import retry_workstream
from interlock.workers.overrides.tasks import complete_task
from interlock.workers.overrides.transaction import CannotOverride, Done, NotAnOperator, OverrideOrder
from interlock.workers.overrides.workstreams_and_patches import fail_workstream, validate_workstream
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from tests.landscape import Landscape
from tests.running import Stage

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
BY_HAND = OverrideOrder("ann", "the disk is no longer full")
BAD, GOOD = {"exit_code": 1}, {"exit_code": 0}


def retry(stage: Stage, name: str, order: OverrideOrder = BY_HAND) -> Done:
    """Have a workstream done again; what was made goes by its name."""
    done = retry_workstream(stage.runtime, str(stage.ids[name]), order)
    if not order.dry_run:
        stage.ids |= done.made
        stage.settle()
    return done


def complete(stage: Stage, *names: str) -> None:
    """Do tasks, one after another, each the last of its workstream, which is merged."""
    for name in names:
        stage.work(name)
        stage.land()


@pytest.fixture
def chain(begun: Stage) -> Stage:
    """See `begin`."""
    return replace(begun, ids=dict(begun.ids))


def begin(runtime: Runtime, dba: Dba, _: Path) -> Stage:
    """`a` failed; `b` depends on it, `c` on `b`, and `d` on both `c` and `x`, which failed too; `other` is at work."""
    stage = Stage(runtime, dba)
    stage.submit(
        {
            "a": {"gates": ["last"]},
            "b": {"depends_on": ["a"]},
            "c": {"depends_on": ["b"]},
            "x": {},
            "d": {"depends_on": ["c", "x"]},
            "other": {},
        },
        {
            "a1": {"workstream": "a", "max_retries": 0, "gates": ["lint"]},
            "a2": {"workstream": "a", "depends_on": ["a1"], "blocked_by_gates": ["first"]},
            "b1": {"workstream": "b"},
            "c1": {"workstream": "c"},
            "x1": {"workstream": "x", "max_retries": 0},
            "d1": {"workstream": "d"},
            "o1": {"workstream": "other"},
        },
        {
            "first": {"workstream": "a"},
            "lint": {"workstream": "a", "moment": "task", "reruns_left": 1},
            "last": {"workstream": "a", "moment": "final", "depends_on": ["first"]},
        },
    )
    stage.start()
    stage.fire("first", "gate_passed", **GOOD)
    stage.work("x1", exit_code=1)
    stage.work("a1", exit_code=1)
    return stage


def test_a_failed_workstream_is_done_again_with_all_that_was_given_up_only_because_of_it(chain: Stage) -> None:
    ended = {"a": "failed", "b": "cancelled", "c": "cancelled", "x": "failed", "d": "cancelled"}
    assert chain.states(*ended, "run") == ended | {"run": "running"}
    done = retry(chain, "a")
    assert sorted(done.made) == [
        *("a1~2", "a2~2", "a~2", "b1~2", "b~2", "c1~2", "c~2", "first~2", "last~2", "lint~2"),
    ]
    assert chain.states(*ended) == ended, "what has ended stays as it is"
    assert chain.states("a~2", "b~2", "c~2", "first~2", "last~2") == {
        "a~2": "ready", "b~2": "blocked", "c~2": "blocked", "first~2": "RUNNING", "last~2": "PENDING",
    }  # fmt: skip
    chain.work("a1~2")
    assert chain.states("a1~2", "lint~2", "a2~2") == {"a1~2": "validating", "lint~2": "RUNNING", "a2~2": "pending"}
    chain.fire("lint~2", "gate_passed", **GOOD)
    assert chain.state("a2~2") == "pending", "the gate before it is asked again"
    chain.fire("first~2", "gate_passed", **GOOD)
    chain.work("a2~2")
    assert chain.states("a~2", "last~2") == {"a~2": "validating", "last~2": "RUNNING"}
    chain.fire("last~2", "gate_passed", **GOOD)
    chain.land()
    for name in ("b", "c"):
        assert chain.state(f"{name}~2") == "ready", "it runs after what it depends on"
        chain.work(f"{name}1~2")
        chain.land()
    retry(chain, "x")
    assert chain.states("x~2", "d~2") == {"x~2": "ready", "d~2": "blocked"}
    complete(chain, "x1~2", "d1~2")
    chain.succeed("o1")


def test_what_was_left_out_waits_for_nothing_that_is_done_again_later(stage: Stage, dba: Dba) -> None:
    """Its links are history: rewired to the second retry, its counts fell below zero."""
    tasks = {f"{name}1": {"workstream": name, "max_retries": 0} for name in ("a", "b", "c")}
    stage.submit({"a": {}, "b": {}, "c": {"depends_on": ["a", "b"]}}, tasks)
    stage.start()
    stage.work("a1", exit_code=1)
    retry(stage, "a")
    stage.work("b1", exit_code=1)
    retry(stage, "b")
    query = (
        "SELECT c.unfinished_dependencies, c.dead_dependencies, ARRAY(SELECT l.target_id FROM workflow_links l"
        " WHERE l.source_id = c.ws_id AND l.role = 'depends_on') FROM workstream_counts c WHERE c.ws_id = %s"
    )
    complete(stage, "a1~2", "b1~2")
    unfinished, dead, waited_for = dba.execute(query, (stage.ids["c"],)).fetchone() or ()
    assert (unfinished, dead) == (0, 2)
    assert set(waited_for) == {stage.ids["a"], stage.ids["b"]}
    assert stage.state("run") == "running"


def test_what_follows_from_its_failure_is_not_lost_when_it_is_done_again_at_once(stage: Stage) -> None:
    stage.submit(
        {"a": {}, "b": {"depends_on": ["a"]}, "open": {}},
        {
            **{each: {"workstream": "a"} for each in ("queued", "running")},
            "b1": {"workstream": "b"},
            "o1": {"workstream": "open"},
        },
    )
    stage.start()
    stage.begin("running")
    fail_workstream(stage.runtime, str(stage.ids["a"]), BY_HAND)
    assert {"b~2", "queued~2"} <= retry(stage, "a").made.keys()
    assert stage.states("queued", "running", "b") == dict.fromkeys(("queued", "running", "b"), "cancelled")
    complete(stage, "queued~2", "running~2", "b1~2")
    stage.succeed("o1")


def test_each_is_linked_to_the_one_that_it_was_made_for_and_says_by_whom(chain: Stage, dba: Dba) -> None:
    made = retry(chain, "a").made
    query = "SELECT target_id FROM workflow_links WHERE source_id = %s AND role = 'retry_of'"
    for name, id_ in made.items():
        assert dba.execute(query, (id_,)).fetchall() == [(chain.ids[name.partition("~")[0]],)], name
        assert chain.client.show(id_)["created_by"] == "ann"
    counts = "SELECT failed, cancelled, ready, blocked FROM run_counts WHERE run_id = %s"
    assert dba.execute(counts, (chain.run,)).fetchone() == (1, 1, 2, 2), "x, d; a~2, other; b~2, c~2"


def test_a_dry_run_changes_nothing_and_tells_what_would_follow(chain: Stage) -> None:
    before = chain.states()
    told = retry(chain, "a", OverrideOrder("ann", "would it?", dry_run=True))
    assert "workstream/a~2: planned → ready (all_tasks_created)" in told.follows
    assert "a~2 takes the place of workstream/a" in told.notes
    chain.settle()
    assert chain.states() == before


def test_a_workstream_can_be_done_again_more_than_once_and_only_in_its_newest_place(chain: Stage) -> None:
    retry(chain, "a")
    chain.work("a1~2", exit_code=1)
    assert chain.states("a~2", "b~2") == {"a~2": "failed", "b~2": "cancelled"}
    with pytest.raises(CannotOverride, match="done again before: a~2 takes its place"):
        retry(chain, "a")
    done = retry(chain, "a~2")
    assert {"a~3", "a1~3", "b~3", "lint~3"} <= done.made.keys()
    chain.work("a1~3")
    chain.fire("lint~3", "gate_failed", **BAD)
    reruns = "SELECT reruns_left FROM test_gates WHERE gate_id = %s"
    assert chain.dba.execute(reruns, (chain.ids["lint~3"],)).fetchone() == (1,), "as many as the plan gave it"
    assert chain.state("a1~3") == "validating"


def test_one_that_a_person_cancelled_depends_on_the_new_one_and_can_be_done_again_after_it(stage: Stage) -> None:
    stage.submit(
        {"a": {}, "b": {"depends_on": ["a"]}, "open": {}},
        {"a1": {"workstream": "a", "max_retries": 0}, "b1": {"workstream": "b"}, "o1": {"workstream": "open"}},
    )
    stage.start()
    stage.fire("b", "user_cancelled")
    stage.work("a1", exit_code=1)
    retry(stage, "a")
    assert stage.state("b") == "cancelled"
    counts = "SELECT depends_on, unfinished_dependencies, dead_dependencies FROM workstreams JOIN workstream_counts"
    found = stage.dba.execute(f"{counts} USING (ws_id) WHERE ws_id = %s", (stage.ids["b"],)).fetchone()
    assert found == ([stage.ids["a~2"]], 1, 0)
    retry(stage, "b")
    assert stage.states("a~2", "b~2") == {"a~2": "ready", "b~2": "blocked"}
    complete(stage, "a1~2", "b1~2")
    stage.succeed("o1")


def test_tasks_elsewhere_that_waited_for_it_are_made_anew_and_what_it_completed_for_others_stands(stage: Stage) -> None:
    stage.submit(
        {"a": {}, "b": {}},
        {
            "done": {"workstream": "a"},
            "broken": {"workstream": "a", "max_retries": 0},
            "used": {"workstream": "b", "depends_on": ["done"], "blocked_by_gates": ["passed"]},
            "lost": {"workstream": "b", "depends_on": ["broken"]},
            "after": {"workstream": "b", "depends_on": ["lost"]},
            "gated": {"workstream": "b", "blocked_by_gates": ["failed"]},
        },
        {"passed": {"workstream": "a"}, "failed": {"workstream": "a"}},
    )
    stage.start()
    stage.fire("passed", "gate_passed", **GOOD)
    stage.work("done")
    stage.fire("failed", "gate_failed", **BAD)
    stage.work("broken", exit_code=1)
    assert stage.states("a", "used", "lost", "after", "gated") == {
        "a": "failed", "used": "queued", "lost": "cancelled", "after": "cancelled", "gated": "cancelled",
    }  # fmt: skip
    retry(stage, "a")
    assert stage.states("used", "lost~2", "gated~2") == {"used": "queued", "lost~2": "pending", "gated~2": "pending"}
    for gate in ("passed~2", "failed~2"):
        stage.fire(gate, "gate_passed", **GOOD)
    stage.succeed("used", "done~2", "broken~2", "lost~2", "after~2", "gated~2")


def test_a_task_elsewhere_that_waited_for_it_is_not_made_anew_where_validation_has_begun(stage: Stage) -> None:
    stage.submit(
        {"w": {}, "v": {}},
        {
            "a": {"workstream": "w", "max_retries": 0},
            "b": {"workstream": "v"},
            "c": {"workstream": "v", "depends_on": ["a"]},
        },
    )
    stage.start()
    stage.begin("b")
    stage.fire("v", "pause")
    stage.fire("b", "execution_completed", **GOOD)
    stage.work("a", exit_code=1)
    assert stage.states("w", "v", "c") == {"w": "failed", "v": "paused", "c": "cancelled"}
    validate_workstream(stage.runtime, str(stage.ids["v"]), BY_HAND)
    assert sorted(retry(stage, "w").made) == ["a~2", "w~2"], "WORKSTREAM-2"
    stage.land()
    complete(stage, "a~2")
    assert stage.states("v", "w~2", "run") == {"v": "completed", "w~2": "completed", "run": "succeeded"}


def test_what_an_operator_left_out_stays_left_out_and_a_waived_gate_judges_again(stage: Stage) -> None:
    stage.submit(
        {"a": {}, "open": {}},
        {
            "idle": {"workstream": "a"},
            "judged": {"workstream": "a", "gates": ["lint"]},
            "broken": {"workstream": "a", "max_retries": 0, "depends_on": ["idle"]},
            "o": {"workstream": "open"},
        },
        {"lint": {"workstream": "a", "moment": "task"}},
    )
    stage.start()
    skip_step(stage.runtime, str(stage.ids["idle"]), BY_HAND)
    stage.settle()
    stage.begin("judged")
    complete_task(stage.runtime, str(stage.ids["judged"]), BY_HAND)
    stage.settle()
    stage.work("broken", exit_code=1)
    assert sorted(retry(stage, "a").made) == ["a~2", "broken~2", "judged~2", "lint~2"]
    stage.work("judged~2")
    assert stage.states("judged~2", "lint~2") == {"judged~2": "validating", "lint~2": "RUNNING"}
    stage.fire("lint~2", "gate_passed", **GOOD)
    stage.succeed("broken~2", "o")


def test_no_change_goes_past_a_gate_of_another_workstream_that_passed_before(stage: Stage) -> None:
    stage.submit(
        {"a": {}, "b": {}},
        {
            "t": {"workstream": "a", "gates": ["theirs"]},
            "broken": {"workstream": "a", "max_retries": 0},
            "u": {"workstream": "b"},
        },
        {"theirs": {"workstream": "b", "moment": "task"}},
    )
    stage.start()
    stage.work("t")
    stage.fire("theirs", "gate_passed", **GOOD)
    assert stage.state("t") == "completed"
    stage.work("broken", exit_code=1)
    retry(stage, "a")
    stage.work("t~2")
    assert stage.states("t~2", "theirs~2") == {"t~2": "validating", "theirs~2": "RUNNING"}
    stage.work("broken~2")
    stage.fire("theirs~2", "gate_failed", **BAD)
    assert stage.states("t~2", "a~2") == {"t~2": "failed", "a~2": "failed"}
    stage.work("u")
    stage.land()


@pytest.fixture
def judged(stage: Stage) -> Stage:
    """`lint` of `a` passed for `t` and `u` of `b`; `unit` of `a` failed `t`, `own` of `b` failed `u`; `a` failed."""
    stage.submit(
        {"a": {}, "b": {}},
        {
            "broken": {"workstream": "a", "max_retries": 0},
            "t": {"workstream": "b", "gates": ["lint", "unit"]},
            "u": {"workstream": "b", "gates": ["own", "lint"]},
            "other": {"workstream": "b"},
        },
        {
            **{each: {"workstream": "a", "moment": "task"} for each in ("lint", "unit")},
            "own": {"workstream": "b", "moment": "task"},
        },
    )
    stage.start()
    stage.work("t")
    stage.work("u")
    stage.fire("lint", "gate_passed", **GOOD)
    for gate in ("unit", "own"):
        stage.fire(gate, "gate_failed", **BAD)
    stage.work("broken", exit_code=1)
    assert stage.states("t", "u", "a", "b") == {"t": "failed", "u": "failed", "a": "failed", "b": "executing"}
    return stage


def test_what_a_gate_of_it_misjudged_elsewhere_is_judged_by_all_of_its_new_gates(judged: Stage) -> None:
    assert {"t~2", "u~2"} & retry(judged, "a").made.keys() == {"t~2"}
    judged.work("t~2")
    judged.fire("unit~2", "gate_passed", **GOOD)
    assert judged.states("t~2", "lint~2") == {"t~2": "validating", "lint~2": "RUNNING"}
    judged.fire("lint~2", "gate_passed", **GOOD)
    assert judged.state("t~2") == "completed"


def test_what_failed_elsewhere_can_be_made_anew_though_a_gate_of_it_had_passed(judged: Stage) -> None:
    with pytest.raises(CannotOverride, match="interlock run retry"):
        _reset(judged, "u")
    retry(judged, "a")
    judged.ids |= _reset(judged, "u").made
    judged.settle()
    judged.work("t~2")
    judged.work("u~2")
    for gate in ("lint~2", "unit~2", "own~2"):
        judged.fire(gate, "gate_passed", **GOOD)
    judged.succeed("broken~2", "other")


def test_a_gate_that_passed_judges_a_task_that_is_reset(stage: Stage) -> None:
    stage.submit(
        {"a": {}},
        {"t": {"workstream": "a", "gates": ["lint", "unit"]}, "u": {"workstream": "a"}},
        {
            "lint": {"workstream": "a", "moment": "task"},
            "unit": {"workstream": "a", "moment": "task", "depends_on": ["lint"]},
        },
    )
    stage.start()
    stage.work("t")
    stage.fire("lint", "gate_passed", **GOOD)
    stage.ids |= reset_task(stage.runtime, str(stage.ids["t"]), BY_HAND).made
    stage.settle()
    stage.work("t~2")
    assert stage.states("t~2", "lint~2", "unit") == {"t~2": "validating", "lint~2": "RUNNING", "unit": "RUNNING"}
    stage.fire("unit", "gate_passed", **GOOD)
    assert stage.state("t~2") == "validating"
    stage.fire("lint~2", "gate_passed", **GOOD)
    stage.succeed("u")


def test_only_an_operator_and_only_a_failed_or_cancelled_workstream_of_a_running_run(chain: Stage) -> None:
    with pytest.raises(NotAnOperator):
        retry(chain, "a", OverrideOrder("bob", "please"))
    with pytest.raises(CannotOverride, match="other is ready; only a workstream that failed or was cancelled"):
        retry(chain, "other")
    with pytest.raises(
        CannotOverride, match=r"b depends on a, which is failed; do that one again first: interlock run retry"
    ):
        retry(chain, "b")
    lint = chain.ids["lint"]
    for refused in (lambda: rerun_gate(chain.runtime, str(lint), BY_HAND), lambda: _reset(chain, "a1")):
        with pytest.raises(CannotOverride, match=rf"interlock run retry {chain.ids['a']} --reason WHY"):
            refused()
    chain.work("o1")
    chain.land()
    assert chain.state("run") == "failed"
    with pytest.raises(CannotOverride, match=rf"interlock run resume {chain.run}"):
        retry(chain, "a")


def _reset(stage: Stage, name: str) -> Done:
    return reset_task(stage.runtime, str(stage.ids[name]), BY_HAND)


def test_a_run_whose_critical_workstream_failed_has_failed(stage: Stage) -> None:
    stage.submit(
        {"a": {"critical": True}, "b": {}},
        {"a1": {"workstream": "a", "max_retries": 0}, "b1": {"workstream": "b"}},
    )
    stage.start()
    stage.work("a1", exit_code=1)
    with pytest.raises(CannotOverride, match="interlock run resume"):
        retry(stage, "a")


def test_postgresql_takes_no_workstream_that_the_plan_does_not_name_but_one_in_an_ended_ones_place(
    runtime: Runtime, dba: Dba, tmp_path: Path
) -> None:
    land = Landscape(runtime, dba, tmp_path)

    def add(by: str, **context: Any) -> None:
        said = {"run_id": str(land.run), "name": "w", "retry_of": str(land.workstream)} | context
        birth = land.client.birth("workstream", f"demo/{uuid7()}", project=land.project, context=said)
        with transaction(runtime.database) as connection:
            creation.deliver(connection, [replace(birth, created_by=by)])

    refused = pytest.raises(BadInput, match="takes no workstream that its plan does not name")
    with refused:
        add("ann")  # it has not ended
    land.fail()
    for by, context in (("mallory", {}), ("ann", {"name": "other"})):
        with refused:
            add(by, **context)
    before = land.place
    (made,) = retry_workstream(runtime, str(land.workstream), BY_HAND).made.values()
    with refused:
        add("ann")  # another one has its place
    land.workstream = made
    assert land.place.branch == f"{before.branch}-{made.hex[-6:]}", "a branch and a worktree of its own"
    assert land.place.path != before.path
    assert land.place.archive != before.archive
