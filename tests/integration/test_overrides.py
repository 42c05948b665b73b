"""Overrides take the machine's own moves and pass over its guards; who is no operator takes none (RECOVER-5)."""

from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.errors import CheckViolation, InsufficientPrivilege
from uuid_utils.compat import uuid7

from interlock.workers.client.client import Client
from interlock.workers.overrides.operators import revoke
from interlock.workers.overrides.rerun_gate import rerun_gate
from interlock.workers.overrides.reset_task import reset_task, skip_step
from interlock.workers.overrides.tasks import complete_task, fail_task, unblock_task
from interlock.workers.overrides.transaction import CannotOverride, NotAnOperator, Operation, OverrideOrder, operating
from interlock.workers.overrides.workstreams_and_patches import fail_workstream, validate_workstream
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from tests.driving import drain_all, outcome
from tests.rights import fire, grant
from tests.running import GATED_PAIR, Stage

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
BY_HAND = OverrideOrder("ann", "seen to it myself")
TRIED = OverrideOrder("ann", "would it?", dry_run=True)


def last(stage: Stage, name: str) -> Any:
    return stage.client.history(stage.ids[name])[-1]


def failed_before_another(stage: Stage, *, max_retries: int) -> None:
    """A run whose task `a`, which `b` waits for, has failed once; `c` is beside them."""
    stage.submit(
        {"w": {}},
        {
            "a": {"workstream": "w", "max_retries": max_retries},
            "b": {"workstream": "w", "depends_on": ["a"]},
            "c": {"workstream": "w"},
        },
    )
    stage.start()
    stage.work("a", exit_code=1)


def everything(dba: Dba) -> list[Any]:
    tables = ("workflow_instances", "workflow_transitions", "trigger_requests", "workflow_links", "tasks", "test_gates",
              "workstream_counts", "run_signals", "effects", "task_claims")  # fmt: skip
    return [dba.execute(f"SELECT t::text FROM {table} t ORDER BY 1").fetchall() for table in tables]


def test_a_running_task_is_completed_whatever_its_gates_say_and_history_tells_who_and_why(stage: Stage) -> None:
    stage.submit(*GATED_PAIR)
    stage.start()
    stage.begin("a")
    done = complete_task(stage.runtime, str(stage.ids["a"]), BY_HAND)
    assert [(move.trigger, move.from_state, move.to_state) for move in done.moves] == [
        ("execution_completed", "running", "validating"),
        ("validation_passed", "validating", "completed"),
    ]
    assert done.moves[1].passed_over == ("gates_passed", "patches_verified")
    event = last(stage, "a")
    assert (event["severity"], event["triggered_by"]) == ("warning", "ann")
    assert event["metadata"]["operator"] == "ann"
    assert event["metadata"]["reason"] == "seen to it myself"
    assert event["metadata"]["override"] == {"to": "completed", "passed_over": ["gates_passed", "patches_verified"]}
    stage.settle()
    assert stage.state("b") == "queued"
    stage.work("b")
    assert stage.state("w") == "validating"


def test_its_queries_find_overrides_and_nothing_else(stage: Stage, dba: Dba) -> None:
    stage.submit({"w": {}}, {"a": {"workstream": "w"}})
    stage.start()
    stage.begin("a")
    complete_task(stage.runtime, str(stage.ids["a"]), BY_HAND)
    found = dba.execute(
        "SELECT entity_type, entity_id, from_state, to_state, operator, reason FROM state_transitions"
        " WHERE operator IS NOT NULL AND transitioned_at > now() - interval '1 day' ORDER BY transition_id"
    ).fetchall()
    assert found == [
        ("task", "a", "running", "validating", "ann", "seen to it myself"),
        ("task", "a", "validating", "completed", "ann", "seen to it myself"),
    ]


def test_a_dry_run_tells_what_would_follow_and_changes_nothing(stage: Stage, dba: Dba) -> None:
    stage.submit({"w": {}}, {"a": {"workstream": "w"}, "b": {"workstream": "w", "depends_on": ["a"]}})
    stage.start()
    stage.begin("a")
    before = everything(dba)
    done = complete_task(stage.runtime, str(stage.ids["a"]), TRIED)
    assert everything(dba) == before
    assert [move.to_state for move in done.moves] == ["validating", "completed"]
    assert "task/b: pending → queued (scheduler_assigned)" in done.follows


def test_who_is_no_operator_changes_nothing(stage: Stage, dba: Dba) -> None:
    stage.submit({"w": {}}, {"a": {"workstream": "w"}})
    stage.start()
    before = everything(dba)
    with pytest.raises(NotAnOperator, match="interlock operator grant eve"):
        skip_step(stage.runtime, str(stage.ids["a"]), OverrideOrder("eve", "because"))
    log, _, request, *others = [set(after) - set(was) for was, after in zip(before, everything(dba), strict=True)]
    assert all("refusal_log" in str(each) for each in log)
    assert len(log) == len(request) == 1
    assert not any(others)


def test_who_was_revoked_meanwhile_is_rejected_by_the_engine(client: Client, runtime: Runtime, dba: Dba) -> None:
    story = client.create("story", "S-1", project=uuid7())["id"]
    grant(client, "bob")
    dba.execute(
        "INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, metadata, origin)"
        " VALUES ('r', '', %s, 'design_complete', 'bob',"
        """ '{"operator": "bob", "reason": "x", "override": {"to": "design"}}', 'override')""",
        (story,),
    )
    revoke(runtime, "bob", by="ann", reason="a test")
    drain_all(runtime)
    settled = outcome(client, "r")
    assert (settled["status"], settled["result"]["code"]) == ("rejected", "not_an_operator")
    assert "operator list" in settled["result"]["message"]


EVENT = """
WITH asked AS (
    INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by)
    VALUES (gen_random_uuid()::text, '', %(id)s, 'design_complete', %(by)s) RETURNING request_id
), moved AS (
    UPDATE workflow_instances SET current_state = 'design', version = version + 1 WHERE id = %(id)s RETURNING version
)
INSERT INTO workflow_transitions (id, workflow_id, seq, definition_version, from_state, to_state, trigger, triggered_by,
                                  severity, metadata, request_id)
SELECT gen_random_uuid(), %(id)s, version, '1.0.0', 'analysis', 'design', 'design_complete', %(by)s, %(severity)s,
       %(metadata)s::jsonb, request_id FROM moved, asked"""


@pytest.mark.parametrize("role", ["origin", "replica"])
@pytest.mark.parametrize(
    ("by", "severity", "metadata", "refusal"),
    [
        ("eve", "warning", '{"operator": "eve", "reason": "x"}', InsufficientPrivilege),
        ("eve", "warning", '{"operator": "ann", "reason": "x"}', InsufficientPrivilege),
        ("ann", "warning", '{"override": {}, "reason": "x"}', InsufficientPrivilege),
        ("ann", "warning", '{"operator": "ann"}', CheckViolation),
        ("ann", "warning", '{"operator": "ann", "reason": ""}', CheckViolation),
        ("ann", "info", '{"operator": "ann", "reason": "x"}', CheckViolation),
    ],
)
def test_raw_sql_cannot_speak_as_an_operator(
    client: Client, dba: Dba, role: str, by: str, severity: str, metadata: str, refusal: type[Exception]
) -> None:
    story = client.create("story", "S-1", project=uuid7())["id"]
    dba.execute(f"SET session_replication_role = {role}")
    with pytest.raises(refusal):
        dba.execute(EVENT, {"id": story, "by": by, "severity": severity, "metadata": metadata})
    assert client.show(story)["version"] == 0


def test_raw_sql_may_tell_an_operators_override(client: Client, dba: Dba) -> None:
    story = client.create("story", "S-1", project=uuid7())["id"]
    said = {"by": "ann", "severity": "warning", "metadata": '{"operator": "ann", "reason": "x"}'}
    dba.execute(EVENT, {"id": story, **said})
    assert client.show(story)["current_state"] == "design"


@pytest.mark.parametrize("key", ["operator", "override"])
def test_an_agent_cannot_speak_as_an_operator(client: Client, dba: Dba, key: str) -> None:
    story = client.create("story", "S-1", project=uuid7())["id"]
    with pytest.raises(BadInput, match=f"data.{key} is reserved for overrides"):
        client.fire(story, "design_complete", by="ann", data={key: "ann"})
    with pytest.raises(CheckViolation):
        dba.execute(
            "INSERT INTO trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, metadata)"
            " VALUES ('r', '', %s, 'design_complete', 'ann', jsonb_build_object(%s::text, 'ann'))",
            (story, key),
        )


def test_an_override_overtakes_a_request_in_retry(runtime: Runtime, client: Client, dba: Dba) -> None:
    story = client.create("story", "S-1", project=uuid7())["id"]
    stuck = client.fire(story, "design_complete", by="agent")
    dba.execute(
        "UPDATE trigger_requests SET status = 'scheduled', attempts = 3, not_before = now() + interval '1 hour'"
        " WHERE request_id = %s",
        (stuck.request_id,),
    )
    with operating(runtime, BY_HAND, "block", story) as operation:
        operation.walk(operation.find(story), "blocked")
    assert client.show(story)["current_state"] == "blocked"
    assert outcome(client, stuck.request_id)["status"] == "scheduled"


def walk(runtime: Runtime, ref: UUID, to: str) -> Operation:
    with operating(runtime, BY_HAND, "walk", ref) as operation:
        operation.walk(operation.find(ref), to)
    return operation


def test_an_approval_is_passed_over_and_the_event_says_so(runtime: Runtime, client: Client) -> None:
    sprint = client.create("sprint", "P-1", project=uuid7())["id"]
    held = fire(client, sprint, "start", by="agent")
    drain_all(runtime)
    assert outcome(client, held.request_id)["status"] == "waiting"
    walk(runtime, sprint, "active")
    assert client.history(sprint)[-1]["metadata"]["override"] == {"to": "active", "passed_over": ["approval"]}


def test_what_has_no_way_there_is_refused_with_what_would_be_legal(runtime: Runtime, client: Client) -> None:
    story = client.create("story", "S-1", project=uuid7())["id"]
    with pytest.raises(
        CannotOverride,
        match="cannot get from analysis to nowhere; legal: design_complete, block, move_to_sprint, leave_sprint",
    ):
        walk(runtime, story, "nowhere")


class TestTasks:
    """Each command, and what the run around the task makes of it."""

    def test_failing_a_running_task_takes_it_from_its_worker_whatever_retries_it_has(self, stage: Stage) -> None:
        stage.submit({"w": {}}, {"a": {"workstream": "w", "max_retries": 3}, "b": {"workstream": "w"}})
        stage.start()
        stage.begin("a")
        fail_task(stage.runtime, str(stage.ids["a"]), BY_HAND)
        stage.settle()
        assert stage.state("a") == "failed"
        assert stage.fire("a", "execution_completed", exit_code=0) == "rejected"
        stage.work("b")
        assert stage.state("w") == "failed"
        assert stage.state("run") == "failed"

    @pytest.mark.parametrize("override", [complete_task, fail_task])
    def test_what_was_never_begun_can_neither_be_completed_nor_fail(self, stage: Stage, override: Any) -> None:
        stage.submit({"w": {}}, {"a": {"workstream": "w"}})
        stage.start()
        with pytest.raises(CannotOverride, match="never started: skip it"):
            override(stage.runtime, str(stage.ids["a"]), BY_HAND)

    def test_a_left_out_task_holds_nobody_up_and_the_run_succeeds(self, stage: Stage) -> None:
        stage.submit(
            {"w": {}},
            {
                "a": {"workstream": "w", "gates": ["g"]},
                "b": {"workstream": "w", "depends_on": ["a"]},
                "c": {"workstream": "w"},
            },
            {"g": {"workstream": "w", "moment": "task"}},
        )
        stage.start()
        done = skip_step(stage.runtime, str(stage.ids["a"]), BY_HAND)
        assert done.notes == ["task/b goes on without it"]
        stage.settle()
        assert stage.states("a", "b", "c") == {"a": "cancelled", "b": "queued", "c": "queued"}
        stage.succeed("b", "c")

    def test_a_step_that_failed_is_left_out_with_what_it_held_up(self, stage: Stage) -> None:
        failed_before_another(stage, max_retries=0)
        assert stage.states("a", "b") == {"a": "failed", "b": "cancelled"}
        done = skip_step(stage.runtime, str(stage.ids["a"]), BY_HAND)
        stage.ids |= done.made
        stage.settle()
        assert [note for note in done.notes if "goes on" in note] == ["task/b~2 goes on without it"], "b has ended"
        assert stage.states("a~2", "b~2") == {"a~2": "cancelled", "b~2": "queued"}
        stage.succeed("b~2", "c")

    def test_a_reset_task_is_a_new_one_in_the_old_ones_place(self, stage: Stage, dba: Dba) -> None:
        failed_before_another(stage, max_retries=1)
        stage.dba.execute(
            "UPDATE trigger_requests SET not_before = now(), status = 'pending' WHERE status = 'scheduled'"
        )
        stage.settle()
        stage.work("a", exit_code=1)
        done = reset_task(stage.runtime, str(stage.ids["a"]), BY_HAND)
        stage.ids |= done.made
        stage.settle()
        assert stage.states("a", "a~2", "b", "b~2") == {
            "a": "failed", "a~2": "queued", "b": "cancelled", "b~2": "pending",
        }  # fmt: skip
        counts = dba.execute(
            "SELECT entity_id, t.retry_count FROM tasks t JOIN workflow_instances ON id = task_id"
        ).fetchall()
        assert dict(counts)["a~2"] == 1, "what was used up stays so"
        assert stage.client.history(stage.ids["a~2"])[0]["metadata"]["operator"] == "ann"
        stage.succeed("a~2", "b~2", "c")
        with pytest.raises(CannotOverride, match="a~2 replaces it"):
            reset_task(stage.runtime, str(stage.ids["a"]), BY_HAND)

    def test_a_task_at_work_is_cancelled_and_made_anew(self, stage: Stage) -> None:
        stage.submit({"w": {}}, {"a": {"workstream": "w"}, "b": {"workstream": "w", "depends_on": ["a"]}})
        stage.start()
        stage.begin("a")
        done = reset_task(stage.runtime, str(stage.ids["a"]), BY_HAND, clear_retry_count=True)
        stage.ids |= done.made
        stage.settle()
        assert stage.states("a", "a~2", "b") == {"a": "cancelled", "a~2": "queued", "b": "pending"}
        stage.succeed("a~2", "b")

    def test_a_gate_that_failed_for_good_is_run_again_with_the_task_that_it_failed(self, stage: Stage) -> None:
        stage.submit(
            {"w": {}},
            {"a": {"workstream": "w", "gates": ["g"]}, "b": {"workstream": "w"}},
            {"g": {"workstream": "w", "moment": "task", "reruns_left": 0}},
        )
        stage.start()
        stage.work("a")
        stage.fire("g", "gate_failed", exit_code=1)
        assert stage.state("a") == "failed"
        done = reset_task(stage.runtime, str(stage.ids["a"]), BY_HAND)
        stage.ids |= done.made
        stage.settle()
        stage.work("a~2")
        assert stage.state("g~2") == "RUNNING"
        stage.fire("g~2", "gate_passed", exit_code=0)
        stage.succeed("b")

    def test_a_gate_that_had_nothing_left_to_judge_judges_the_new_task(self, stage: Stage) -> None:
        stage.submit(
            {"w": {}},
            {"a": {"workstream": "w", "gates": ["g"], "max_retries": 0}, "b": {"workstream": "w"}},
            {"g": {"workstream": "w", "moment": "task"}},
        )
        stage.start()
        stage.work("a", exit_code=1)
        assert stage.states("a", "g") == {"a": "failed", "g": "PENDING"}
        stage.ids |= reset_task(stage.runtime, str(stage.ids["a"]), BY_HAND).made
        stage.settle()
        stage.work("a~2")
        assert stage.state("g") == "RUNNING"
        stage.fire("g", "gate_passed", exit_code=0)
        assert stage.state("a~2") == "completed"

    def test_a_task_of_a_workstream_that_ended_is_left_to_resume(self, stage: Stage) -> None:
        stage.submit({"w": {}}, {"a": {"workstream": "w", "max_retries": 0}})
        stage.start()
        stage.work("a", exit_code=1)
        with pytest.raises(CannotOverride, match=r"interlock run resume [0-9a-f-]{36}"):
            reset_task(stage.runtime, str(stage.ids["a"]), BY_HAND)

    def test_a_completed_task_is_neither_reset_nor_left_out(self, stage: Stage) -> None:
        stage.submit({"w": {}}, {"a": {"workstream": "w"}, "b": {"workstream": "w"}})
        stage.start()
        stage.work("a")
        with pytest.raises(CannotOverride, match="is completed"):
            reset_task(stage.runtime, str(stage.ids["a"]), BY_HAND)
        with pytest.raises(CannotOverride, match=r"is completed already|cannot get from completed"):
            skip_step(stage.runtime, str(stage.ids["a"]), BY_HAND)

    def test_a_waiting_task_is_let_go_without_what_it_waits_for(self, stage: Stage) -> None:
        stage.submit(
            {"w": {}},
            {"a": {"workstream": "w"}, "b": {"workstream": "w", "depends_on": ["a"], "blocked_by_gates": ["g"]}},
            {"g": {"workstream": "w", "moment": "start"}},
        )
        stage.start()
        done = unblock_task(stage.runtime, str(stage.ids["b"]), BY_HAND)
        assert done.notes == ["it waits no longer for task/a (queued)", "it waits no longer for test_gate/g (RUNNING)"]
        stage.settle()
        assert stage.state("b") == "queued"
        stage.succeed("a", "b")
        with pytest.raises(CannotOverride, match="is completed; only a task that waits"):
            unblock_task(stage.runtime, str(stage.ids["b"]), BY_HAND)


class TestWorkstreams:
    @pytest.mark.parametrize("state", ["planned", "ready", "executing", "paused", "validating"])
    def test_a_workstream_is_given_up_from_everywhere_and_the_run_ends(self, stage: Stage, state: str) -> None:
        stage.submit({"w": {}, "v": {}}, {"a": {"workstream": "w"}, "b": {"workstream": "v"}})
        if state != "planned":
            stage.start()
        if state in ("executing", "paused"):
            stage.begin("a")
        if state == "paused":
            stage.fire("w", "pause")
        if state == "validating":
            stage.work("a")
        assert stage.state("w") == state
        fail_workstream(stage.runtime, str(stage.ids["w"]), BY_HAND)
        stage.settle()
        assert stage.state("w") == "failed"
        assert last(stage, "w")["severity"] == "warning"
        if state == "planned":
            stage.start()
        stage.work("b")
        stage.land()
        assert stage.state("run") == "failed"

    def test_a_workstream_that_waits_for_another_is_given_up_but_not_validated(self, stage: Stage) -> None:
        stage.submit({"v": {}, "w": {"depends_on": ["v"]}}, {"a": {"workstream": "v"}, "b": {"workstream": "w"}})
        stage.start()
        assert stage.state("w") == "blocked"
        with pytest.raises(CannotOverride, match="is blocked: no task of it has run"):
            validate_workstream(stage.runtime, str(stage.ids["w"]), BY_HAND)
        done = fail_workstream(stage.runtime, str(stage.ids["w"]), BY_HAND)
        assert [move.to_state for move in done.moves] == ["ready", "executing", "failed"]
        stage.work("a")
        stage.land()
        assert stage.states("w", "b", "run") == {"w": "failed", "b": "cancelled", "run": "failed"}

    def test_a_paused_workstream_whose_tasks_ended_is_validated_though_one_failed(self, stage: Stage) -> None:
        stage.submit({"w": {}}, {"a": {"workstream": "w", "max_retries": 0}})
        stage.start()
        stage.begin("a")
        stage.fire("w", "pause")
        with pytest.raises(CannotOverride, match="workstream/w has 1 unended task:"):
            validate_workstream(stage.runtime, str(stage.ids["w"]), BY_HAND)
        stage.fire("a", "execution_failed", exit_code=1)
        done = validate_workstream(stage.runtime, str(stage.ids["w"]), BY_HAND)
        assert [move.to_state for move in done.moves] == ["executing", "validating"]
        stage.settle()
        stage.succeed()

    def test_a_workstream_that_is_being_validated_takes_no_task_that_is_made_anew(self, stage: Stage) -> None:
        stage.submit(
            {"w": {}}, {"a": {"workstream": "w", "gates": ["g"]}}, {"g": {"workstream": "w", "moment": "task"}}
        )
        stage.start()
        stage.begin("a")
        stage.fire("w", "pause")
        stage.fire("a", "execution_completed", exit_code=0)
        stage.fire("g", "gate_failed", exit_code=1, stderr="no")
        assert stage.states("w", "a", "g") == {"w": "paused", "a": "failed", "g": "FAILED"}
        validate_workstream(stage.runtime, str(stage.ids["w"]), BY_HAND)
        for make_anew in (reset_task, skip_step):
            with pytest.raises(CannotOverride, match=r"w of task/a is validating, and .* interlock run retry [0-9a-f]"):
                make_anew(stage.runtime, str(stage.ids["a"]), BY_HAND)
        assert [*rerun_gate(stage.runtime, str(stage.ids["g"]), BY_HAND).made] == ["g~2"], "and not what it failed"
        stage.settle()
        assert stage.state("w") == "validating"
        stage.succeed()
