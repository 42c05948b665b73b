"""A gate that can never pass holds nothing up for ever (GATE-8), and one that is run again only until then."""

from typing import Any

import psycopg
import pytest

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
