"""A gate that can never pass holds nothing up for ever (GATE-8), and one that is run again only until then."""

from typing import Any

import psycopg
import pytest

from interlock.workers.overrides.rerun_gate import rerun_gate
from interlock.workers.overrides.transaction import CannotOverride, NotAnOperator, OverrideOrder
from tests.rights import fire
from tests.running import Stage

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
BAD, GOOD = {"exit_code": 1}, {"exit_code": 0}


def test_a_task_does_not_wait_for_a_gate_of_a_skipped_workstream(stage: Stage) -> None:
    stage.submit(
        {"a": {}, "b": {}},
        {"a1": {"workstream": "a"}, "b1": {"workstream": "b", "blocked_by_gates": ["g"]}, "b2": {"workstream": "b"}},
        {"g": {"workstream": "a"}},
    )
    stage.settle()
    stage.fire("a", "skip")
    stage.start()
    assert stage.states("b1", "b2") == {"b1": "cancelled", "b2": "queued"}
    stage.work("b2")
    assert stage.states("b", "run") == {"b": "failed", "run": "failed"}


def test_a_task_does_not_wait_for_a_gate_that_nothing_is_left_for_to_judge(stage: Stage) -> None:
    stage.submit(
        {"a": {}},
        {
            "t": {"workstream": "a", "max_retries": 0, "gates": ["lint"]},
            "u": {"workstream": "a", "gates": ["unit"]},
        },
        {
            "lint": {"workstream": "a", "moment": "task"},
            "unit": {"workstream": "a", "moment": "task", "depends_on": ["lint"]},
        },
    )
    stage.start()
    stage.work("u")
    assert stage.state("u") == "validating"
    stage.work("t", exit_code=1)
    assert stage.states("t", "u", "a", "run") == {"t": "failed", "u": "failed", "a": "failed", "run": "failed"}


@pytest.mark.parametrize("exit_code", [1, 70])
def test_a_task_whose_gate_failed_says_which_how_and_what_it_printed_last(stage: Stage, exit_code: int) -> None:
    stage.submit(
        {"a": {}},
        {"t": {"workstream": "a", "gates": ["lint", "unit"]}},
        {
            "lint": {"workstream": "a", "moment": "task"},
            "unit": {"workstream": "a", "moment": "task", "depends_on": ["lint"]},  # lost with it, but not to blame
        },
    )
    stage.start()
    stage.work("t")
    printed = "x" * 5_000 + "\nE501 line too long"
    stage.fire("lint", "gate_failed", exit_code=exit_code, stdout=printed, stderr="")
    asked = "SELECT state, last_error, exit_code FROM tasks WHERE task_id = %s"
    state, error, own = stage.dba.execute(asked, (stage.ids["t"],)).fetchall()[0]
    assert (state, own) == ("failed", 0)
    first, _, rest = error.partition("\n")
    assert first == f"gate lint failed with exit code {exit_code}"
    assert rest.endswith("xxx\nE501 line too long")
    assert len(rest) == 1_000
    said = stage.client.history(stage.ids["t"])[-1]["metadata"]
    assert (said["reason"], said["gate"], said["exit_code"]) == (first, "lint", None)


def test_a_workstream_does_not_wait_for_a_final_gate_of_one_that_failed(stage: Stage) -> None:
    stage.submit(
        {"a": {"gates": ["f"]}, "b": {"gates": ["g"]}},
        {"a1": {"workstream": "a", "max_retries": 0}, "b1": {"workstream": "b"}},
        {"f": {"workstream": "a", "moment": "final"}, "g": {"workstream": "b", "moment": "final", "depends_on": ["f"]}},
    )
    stage.start()
    stage.work("b1")
    assert stage.states("b", "g") == {"b": "validating", "g": "PENDING"}
    stage.work("a1", exit_code=1)
    assert stage.states("a", "b", "run") == {"a": "failed", "b": "failed", "run": "failed"}


def test_a_gate_is_blocked_until_the_failed_one_before_it_passes_when_run_again(stage: Stage) -> None:
    _submit_chain(stage)  # GATE-5: blocked, then unblocked
    stage.fire("g1", "gate_failed", **BAD)
    assert stage.states("g1", "g2", "t") == {"g1": "FAILED", "g2": "BLOCKED", "t": "blocked"}
    stage.fire(_again(stage, "g1"), "gate_passed", **GOOD)
    assert stage.states("g2", "t") == {"g2": "RUNNING", "t": "blocked"}
    stage.fire("g2", "gate_passed", **GOOD)
    assert stage.state("t") == "queued"
    refused = "SELECT trigger FROM trigger_requests WHERE triggered_by = 'scheduler' AND status = 'rejected'"
    assert stage.dba.execute(refused).fetchall() == []


def test_a_gate_run_again_depends_on_the_gate_that_was_run_again_before_it(stage: Stage) -> None:
    _submit_chain(stage)
    stage.fire("g1", "gate_failed", **BAD)
    stage.fire(_again(stage, "g1"), "gate_passed", **GOOD)
    stage.fire("g2", "gate_failed", **BAD)
    stage.fire(_again(stage, "g2"), "gate_passed", **GOOD)
    assert stage.state("t") == "queued"


def test_a_gate_run_again_when_its_last_task_was_given_up_holds_nothing_up(stage: Stage) -> None:
    stage.submit(
        {"a": {}},
        {"t": {"workstream": "a", "gates": ["lint"]}, "u": {"workstream": "a", "gates": ["unit"]}},
        {
            "lint": {"workstream": "a", "moment": "task", "reruns_left": 1},
            "unit": {"workstream": "a", "moment": "task", "depends_on": ["lint"]},
        },
    )
    stage.start()
    stage.work("u")
    stage.work("t")
    fire(stage.client, stage.ids["lint"], "gate_failed", by="test", data=BAD)  # both in one pass
    stage.fire("t", "user_cancelled")
    assert stage.states("t", "u", "a", "run") == {"t": "cancelled", "u": "failed", "a": "failed", "run": "failed"}


@pytest.mark.usefixtures("ann")
@pytest.mark.promise("O11")
def test_a_gate_run_again_by_hand_is_followed_by_all_that_waited_for_the_failed_one(stage: Stage) -> None:
    stage.submit(
        {"a": {}},
        {
            "t": {"workstream": "a", "blocked_by_gates": ["h"]},
            "after": {"workstream": "a", "depends_on": ["t"]},
            "judged": {"workstream": "a", "gates": ["h"]},
            "other": {"workstream": "a"},
        },
        {"g": {"workstream": "a"}, "h": {"workstream": "a", "moment": "task", "depends_on": ["g"]}},
    )
    stage.start()
    stage.work("judged")
    stage.fire("g", "gate_failed", exit_code=1, stderr="the package index is down")
    assert stage.states("t", "after", "judged") == {"t": "cancelled", "after": "cancelled", "judged": "failed"}
    with pytest.raises(NotAnOperator):
        rerun_gate(stage.runtime, str(stage.ids["g"]), OverrideOrder("bob", "the index is back"))
    planned = rerun_gate(stage.runtime, str(stage.ids["g"]), OverrideOrder("ann", "the index is back", dry_run=True))
    assert "effect run_gate on test_gate/g~2" in planned.follows
    done = rerun_gate(stage.runtime, str(stage.ids["g"]), OverrideOrder("ann", "the index is back"))
    assert sorted(done.made) == ["after~2", "g~2", "judged~2", "t~2"]
    stage.ids |= done.made
    stage.settle()
    assert stage.states("g", "g~2", "h", "t~2") == {"g": "FAILED", "g~2": "RUNNING", "h": "BLOCKED", "t~2": "blocked"}
    links = "SELECT source_id FROM workflow_links WHERE target_id = %s AND role = 'retry_of'"
    assert stage.dba.execute(links, (stage.ids["g"],)).fetchall() == [(stage.ids["g~2"],)]
    assert stage.client.show(stage.ids["g~2"])["created_by"] == "ann"
    stage.fire("g~2", "gate_passed", **GOOD)
    stage.work("judged~2")
    stage.fire("h", "gate_passed", **GOOD)
    stage.succeed("other", "t~2", "after~2")


@pytest.mark.usefixtures("ann")
def test_only_a_gate_that_failed_for_good_in_a_workstream_at_work_is_run_again_by_hand(stage: Stage) -> None:
    order = OverrideOrder("ann", "mended")
    stage.submit(
        {"a": {}},
        {"t": {"workstream": "a", "blocked_by_gates": ["bad"]}, "u": {"workstream": "a"}},
        {"good": {"workstream": "a"}, "bad": {"workstream": "a"}},
    )
    stage.start()
    for refused in ("good", "bad"):
        with pytest.raises(CannotOverride, match="is RUNNING; only a gate that has failed"):
            rerun_gate(stage.runtime, str(stage.ids[refused]), order)
    stage.fire("good", "gate_passed", **GOOD)
    with pytest.raises(CannotOverride, match="has passed"):
        rerun_gate(stage.runtime, str(stage.ids["good"]), order)
    stage.fire("bad", "gate_failed", **BAD)
    stage.ids |= rerun_gate(stage.runtime, str(stage.ids["bad"]), order).made
    stage.settle()
    with pytest.raises(CannotOverride, match="bad~2 replaces it"):
        rerun_gate(stage.runtime, str(stage.ids["bad"]), order)
    stage.fire("bad~2", "gate_failed", **BAD)
    stage.work("u")
    assert stage.state("a") == "failed"
    with pytest.raises(CannotOverride, match=r"interlock run resume [0-9a-f-]{36}"):
        rerun_gate(stage.runtime, str(stage.ids["bad~2"]), order)


@pytest.mark.promise("O11")
def test_gates_end_with_their_workstream_whatever_they_waited_for(stage: Stage) -> None:
    stage.submit(
        {"a": {}},
        {"t": {"workstream": "a", "gates": ["later"]}},
        {
            "begun": {"workstream": "a"},
            "failed": {"workstream": "a"},
            "behind": {"workstream": "a", "depends_on": ["failed"]},
            "later": {"workstream": "a", "moment": "task"},
        },
    )
    stage.start()
    stage.fire("failed", "gate_failed", **BAD)
    gates = ("begun", "failed", "behind", "later")
    assert [*stage.states(*gates).values()] == ["RUNNING", "FAILED", "BLOCKED", "PENDING"]
    stage.fire("a", "user_cancelled")
    assert [*stage.states(*gates).values()] == ["CANCELLED", "FAILED", "CANCELLED", "CANCELLED"]
    assert stage.client.history(stage.ids["later"])[-1]["metadata"]["reason"] == "its workstream is cancelled"


def test_work_that_became_free_during_a_pause_goes_on_after_it(stage: Stage) -> None:
    stage.submit({"a": {}}, {"t": {"workstream": "a"}, "u": {"workstream": "a", "depends_on": ["t"]}})
    stage.start()
    stage.begin("t")
    stage.fire("a", "pause")
    stage.fire("t", "execution_completed", exit_code=0)
    assert stage.states("t", "u") == {"t": "completed", "u": "pending"}
    stage.fire("a", "resume")
    assert stage.state("u") == "queued"


def _submit_chain(stage: Stage) -> None:
    stage.submit(
        {"a": {}},
        {"t": {"workstream": "a", "blocked_by_gates": ["g2"]}},
        {
            "g1": {"workstream": "a", "reruns_left": 1},
            "g2": {"workstream": "a", "reruns_left": 1, "depends_on": ["g1"]},
        },
    )
    stage.start()


def _again(stage: Stage, gate: str) -> Any:
    """The gate that is run in the place of a failed one."""
    query = "SELECT source_id FROM workflow_links WHERE target_id = %s AND role = 'retry_of'"
    found = stage.dba.execute(query, (stage.ids[gate],)).fetchone()
    assert found, f"{gate} should have been run again"
    return found[0]
