"""Who stands still is found, with the reason; and the command that is printed beside it cures it (SSOT 5.1)."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.crewing import Site, hand, silence
from tests.driving import applied, drain_all, outcome, raising, state
from tests.landscape import Landscape
from tests.running import Stage
from tests.stuck import age, found, paste, terminal
from workers import doctor, sweeping
from workers.breakers import BreakerOpen, calling
from workers.client import Client
from workers.crew import claims
from workers.runtime import Runtime
from workers.stuck.look import look

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"
HALF_AN_HOUR, HOUR, DAY = 1800.0, 3600.0, 86_400.0


@pytest.fixture
def site(client: Client, project: UUID) -> Site:
    return Site(client, project)


@pytest.fixture
def stage(runtime: Runtime, dba: Dba) -> Stage:
    return Stage(runtime, dba)


# Thresholds ------------------------------------------------------------------------------------------------------


def test_a_task_is_stuck_once_it_has_run_for_half_an_hour(runtime: Runtime, site: Site, dba: Dba) -> None:
    (task,) = site.queue()
    claims.take(runtime, hand(runtime))
    drain_all(runtime)
    age(dba, task, HALF_AN_HOUR - 5)
    assert look(runtime) == []
    age(dba, task, HALF_AN_HOUR + 1)
    (only,) = look(runtime)
    assert (only.workflow_id, only.state) == (task, "running")


def test_a_workstream_is_stuck_once_it_has_executed_for_an_hour(stage: Stage, runtime: Runtime, dba: Dba) -> None:
    stage.submit({"w": {}}, {"t": {"workstream": "w"}})
    stage.start()
    stage.begin("t")
    age(dba, stage.ids["w"], HOUR - 5)
    assert [each.workflow_id for each in look(runtime)] == []
    age(dba, stage.ids["w"], HOUR + 1)
    assert [each.workflow_id for each in look(runtime)] == [stage.ids["w"]]


def test_everything_else_has_a_day_unless_it_is_at_rest_or_at_an_end(
    runtime: Runtime, client: Client, project: UUID, dba: Dba
) -> None:
    story = client.create("story", "S-1", project_id=project)["id"]
    ended = client.create("uet_worker", "U-1", project_id=project)["id"]
    at_rest = client.create("supervised_worker", "V-1", project_id=project)["id"]
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '2 days'")
    assert {each.workflow_id for each in look(runtime)} == {story, ended}
    applied(client, story, "block")
    assert {each.workflow_id for each in look(runtime)} == {ended}
    assert at_rest not in {each.workflow_id for each in look(runtime, everything=True)}
    assert story in {each.workflow_id for each in look(runtime, everything=True)}


def test_a_threshold_of_0_is_off(make_runtime: Callable[..., Runtime], site: Site, client: Client, dba: Dba) -> None:
    site.queue()
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '99 days'")
    off = make_runtime(stuck_task_seconds=0.0, stuck_workstream_seconds=0.0, stuck_seconds=0.0)
    assert look(off) == []
    assert look(make_runtime()) != []


def test_only_what_is_asked_for_is_told(runtime: Runtime, client: Client, project: UUID, site: Site) -> None:
    other = client.create("story", "S-1", project_id=UUID(int=7))["id"]
    site.queue()
    assert {each.workflow_type for each in look(runtime, everything=True, type_="task")} == {"task"}
    assert [each.workflow_id for each in look(runtime, everything=True, project_id=UUID(int=7))] == [other]
    assert len(look(runtime, everything=True, limit=1)) == 1


# Reasons and cures -----------------------------------------------------------------------------------------------


def test_a_running_task_names_its_worker_and_is_given_to_another(runtime: Runtime, client: Client, site: Site) -> None:
    (task,) = site.queue()
    claims.take(runtime, hand(runtime, "W"))
    drain_all(runtime)
    told = found(runtime, task, everything=True)
    assert "worker W (busy, heard of 0 s ago) holds it; its time is up at " in told.reason
    paste(runtime, told.command)
    assert state(client, task) == "retrying"


def test_a_queued_task_names_the_capability_nobody_offers(runtime: Runtime, client: Client, site: Site) -> None:
    hand(runtime)
    (task,) = site.queue(1, required_capabilities=["cobol"])
    told = found(runtime, task, everything=True)
    assert told.reason == "no worker offers cobol"
    assert told.command.startswith("INTERLOCK_CAPABILITIES=cobol celery -A workers.main:app worker -Q work")
    hand(runtime, "old-hand", capabilities=("cobol",))
    claims.take(runtime, found_worker(client, "old-hand"))
    drain_all(runtime)
    assert state(client, task) == "running"


def found_worker(client: Client, name: str) -> UUID:
    return UUID(str(client.show(f"worker/{name}")["id"]))


def test_a_queued_task_without_any_worker_says_so(runtime: Runtime, site: Site) -> None:
    (task,) = site.queue()
    told = found(runtime, task, everything=True)
    assert "no worker is alive that could take it" in told.reason
    assert told.command == "interlock up --detach"


def test_a_queued_task_whose_worker_is_suspended_is_freed(runtime: Runtime, client: Client, site: Site) -> None:
    worker = hand(runtime, "W")
    applied(client, worker, "suspend")
    (task,) = site.queue()
    told = found(runtime, task, everything=True)
    assert told.reason == "worker W, which could take it, is suspended"
    paste(runtime, told.command)
    assert state(client, worker) == "idle"
    assert found(runtime, task, everything=True).reason == "worker W is free and fits, but takes nothing"


def test_a_queued_task_whose_workers_are_busy_says_how_many(runtime: Runtime, site: Site) -> None:
    _, second = site.queue(2)
    claims.take(runtime, hand(runtime))
    drain_all(runtime)
    told = found(runtime, second, everything=True)
    assert told.reason == "all 1 workers that fit it are busy (0 of them draining)"
    paste(runtime, told.command)


def test_a_claimed_task_that_was_never_begun_is_taken_from_its_worker(
    runtime: Runtime, client: Client, site: Site, dba: Dba
) -> None:
    (task,) = site.queue()
    worker = hand(runtime, "W")
    dba.execute(  # its process died between its claim and its `worker_started`
        "INSERT INTO task_claims (task_id, run_id, worker_id) SELECT task_id, run_id, %s FROM tasks", (worker,)
    )
    told = found(runtime, task, everything=True)
    assert told.reason == "worker W claimed it 0 s ago and has not begun"
    paste(runtime, told.command)
    other = hand(runtime, "V")
    claims.take(runtime, other)
    drain_all(runtime)
    assert state(client, task) == "running"


def test_a_pending_task_names_what_it_depends_on(stage: Stage, runtime: Runtime) -> None:
    stage.submit({"w": {}}, {"a": {"workstream": "w"}, "b": {"workstream": "w", "depends_on": ["a"]}})
    stage.start()
    told = found(runtime, stage.ids["b"], everything=True)
    assert told.reason == "it depends on task a (queued)"
    assert "queued" in paste(runtime, told.command).out


def test_a_run_that_nobody_started_is_started(stage: Stage, runtime: Runtime) -> None:
    stage.submit({"w": {}}, {"t": {"workstream": "w"}})
    stage.settle()
    assert found(runtime, stage.ids["t"], everything=True).reason == "its run run has not been started"
    told = found(runtime, stage.run, everything=True)
    assert told.reason == "nobody has started it"
    paste(runtime, told.command)
    assert stage.state("run") == "running"


def test_a_paused_workstream_is_resumed(stage: Stage, runtime: Runtime) -> None:
    stage.submit({"w": {}}, {"t": {"workstream": "w"}, "u": {"workstream": "w"}})
    stage.start()
    stage.begin("t")
    stage.fire("w", "pause")
    told = found(runtime, stage.ids["u"], everything=True)
    assert told.reason == "its workstream w is paused"
    paste(runtime, told.command)
    assert stage.state("w") == "executing"


def test_a_validating_task_names_its_gate(stage: Stage, runtime: Runtime) -> None:
    stage.submit({"w": {}}, {"t": {"workstream": "w", "gates": ["g"]}}, {"g": {"workstream": "w", "moment": "task"}})
    stage.start()
    stage.work("t")
    assert found(runtime, stage.ids["t"], everything=True).reason == "it waits for test_gate g (RUNNING)"
    told = found(runtime, stage.ids["g"], everything=True)
    assert told.reason == "the effect run_gate is due, and nobody takes it"
    assert told.command == "interlock doctor"


def test_a_gate_under_a_lease_names_who_holds_it_and_until_when(stage: Stage, runtime: Runtime, dba: Dba) -> None:
    stage.submit({"w": {}}, {"t": {"workstream": "w", "gates": ["g"]}}, {"g": {"workstream": "w", "moment": "task"}})
    stage.start()
    stage.work("t")
    dba.execute(
        "UPDATE effects SET status = 'leased', leased_by = 'gates@here', lease_until = now() + interval '1 minute'"
    )
    reason = found(runtime, stage.ids["g"], everything=True).reason
    assert reason.startswith("gates@here holds the lease of the effect run_gate until ")
    dba.execute("UPDATE effects SET lease_until = now() - interval '1 minute'")
    assert "ran out at" in found(runtime, stage.ids["g"], everything=True).reason


def test_a_workstream_counts_what_has_not_ended(stage: Stage, runtime: Runtime) -> None:
    stage.submit({"w": {}, "v": {"depends_on": ["w"]}}, {name: {"workstream": "w"} for name in "ab"})
    stage.start()
    stage.begin("a")
    told = found(runtime, stage.ids["w"], everything=True)
    assert told.reason.startswith("its tasks: 1 queued, 1 running; ")
    assert told.command.startswith(f"interlock playbook run recover-workstream {stage.ids['w']}")
    assert found(runtime, stage.ids["v"], everything=True).reason == "it depends on workstream w (executing)"
    assert "executing" in found(runtime, stage.run, everything=True).reason


def test_an_approval_that_is_missing_is_given(runtime: Runtime, client: Client, project: UUID) -> None:
    sprint = client.create("sprint", "SP-1", project_id=project, context={"author": "ann"})["id"]
    client.fire(sprint, "start", by="ann")
    drain_all(runtime)
    told = found(runtime, sprint, everything=True)
    assert told.reason.startswith("start by ann waits for the approval approval/SP-1:start:")
    paste(runtime, told.command)
    assert state(client, sprint) == "active"


def test_a_vote_below_its_quorum_says_how_many_are_missing(runtime: Runtime, client: Client, project: UUID) -> None:
    context = {"quorum": 2, "author": "ann", "deciders": [], "subject": "it"}
    approval = client.create("approval", "A-1", project_id=project, context=context)["id"]
    client.fire(approval, "approve", by="carl")
    drain_all(runtime)
    told = found(runtime, approval, everything=True)
    assert told.reason == "approve has 1 of 2 votes"
    paste(runtime, told.command)
    assert state(client, approval) == "approved"


def test_a_refused_trigger_says_what_its_guard_misses(runtime: Runtime, client: Client, project: UUID) -> None:
    story = client.create("story", "S-1", project_id=project)["id"]
    applied(client, story, "design_complete", "start_coding", "submit_pr")
    client.create("pr_review", "PR-1", project_id=project, context={"author": "ann", "story_id": "S-1"})
    client.fire(story, "approve", by="bob")
    drain_all(runtime)
    told = found(runtime, story, everything=True)
    assert told.reason.startswith("approve was refused: ")
    assert "every pull request linked to the story must be merged" in told.reason
    assert "pr_review PR-1 is submitted" in told.reason


def test_who_was_never_asked_anything_says_what_would_be_legal(runtime: Runtime, client: Client, project: UUID) -> None:
    story = client.create("story", "S-1", project_id=project)["id"]
    told = found(runtime, story, everything=True)
    assert told.reason == "nobody has fired a trigger; legal: design_complete, block"
    paste(runtime, told.command)
    assert state(client, story) == "design"


def test_a_dead_request_is_stuck_at_once_and_is_redriven(
    make_runtime: Callable[..., Runtime], project: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = make_runtime(max_attempts=1)
    client = Client(runtime)
    story = client.create("story", "S-1", project_id=project)["id"]
    receipt = client.fire(story, "block", by="ann", request_id="block it")
    with monkeypatch.context() as broken:
        broken.setattr("workers.engine.decide", raising(ValueError))
        drain_all(runtime)
    assert outcome(client, receipt.request_id)["status"] == "dead"
    told = found(runtime, story)
    assert told.reason == "block is dead after 1 attempts: ValueError: on purpose"
    paste(runtime, told.command)
    assert state(client, story) == "blocked"
    assert look(runtime) == []


def test_a_trigger_in_retry_says_when(runtime: Runtime, client: Client, project: UUID, monkeypatch: Any) -> None:
    story = client.create("story", "S-1", project_id=project)["id"]
    client.fire(story, "block", by="ann")
    with monkeypatch.context() as broken:
        broken.setattr("workers.engine.decide", raising(ValueError))
        drain_all(runtime)
    assert found(runtime, story, everything=True).reason.startswith(
        "block failed 1 times (ValueError: on purpose); it is tried again at "
    )


def test_a_trigger_nobody_applies_points_to_the_doctor(
    runtime: Runtime, client: Client, project: UUID, dba: Dba
) -> None:
    story = client.create("story", "S-1", project_id=project)["id"]
    client.fire(story, "block", by="ann")
    dba.execute("UPDATE trigger_requests SET accepted_at = now() - interval '1 minute'")
    told = found(runtime, story, everything=True)
    assert (told.reason, told.command) == ("block is due since 60 s, and nobody applies it", "interlock doctor")


def test_a_task_whose_tool_is_left_alone_names_the_breaker_and_it_is_reset(
    make_runtime: Callable[..., Runtime], project: UUID
) -> None:
    runtime = make_runtime(breaker_failure_threshold=1)
    client = Client(runtime)
    (task,) = Site(client, project).queue(1, tool="pytest")
    with calling(runtime, project, "pytest") as call:
        call.failed("it hangs")
    drain_all(runtime)
    worker = hand(runtime)
    claims.take(runtime, worker)
    drain_all(runtime)
    client.fire(task, "execution_failed", by="W", data={"exit_code": 1, "error": "BreakerOpen: pytest"})
    drain_all(runtime)
    told = found(runtime, task, everything=True)
    assert told.reason.startswith("the breaker of its tool pytest is OPEN until ")
    with pytest.raises(BreakerOpen), calling(runtime, project, "pytest"):
        pass
    assert "interlock breaker reset pytest" in found(runtime, "pytest", everything=True).command
    paste(runtime, told.command)
    with calling(runtime, project, "pytest"):
        pass


def test_a_silent_worker_is_stuck_and_shut_down(runtime: Runtime, client: Client, site: Site, dba: Dba) -> None:
    worker = hand(runtime, "W")
    assert look(runtime) == []
    silence(dba, worker, 130)
    told = found(runtime, worker)
    assert told.reason == "not heard of for 2 min"
    paste(runtime, told.command)
    assert state(client, worker) == "shutdown"
    assert look(runtime) == []


def test_a_patch_in_the_ledger_says_which_effect_it_waits_for(runtime: Runtime, dba: Dba, tmp_path: Any) -> None:
    landscape = Landscape(runtime, dba, tmp_path)
    entry = landscape.patch({"app.py": "1\n"})
    told = found(runtime, entry, everything=True)
    assert told.reason == "the effect validate_patch is due, and nobody takes it"


# The sweep -------------------------------------------------------------------------------------------------------


def test_the_sweep_keeps_what_it_found_and_the_doctor_tells_it(
    runtime: Runtime, client: Client, site: Site, dba: Dba
) -> None:
    worker = hand(runtime, "W")
    silence(dba, worker, 130)
    assert sweep(runtime, dba) == 1
    (finding,) = [each for each in doctor.examine(runtime) if each.check == "stuck"]
    assert (finding.level, finding.says) == ("warn", "stand still for too long: 1 worker")
    silence(dba, worker, 0)
    assert sweep(runtime, dba) == 0
    (finding,) = [each for each in doctor.examine(runtime) if each.check == "stuck"]
    assert finding.level == "ok"


def test_notice_is_given_once_for_each_who_is_stuck(make_runtime: Callable[..., Runtime], dba: Dba) -> None:
    runtime = make_runtime(notify_urls=("json://127.0.0.1:9",))
    worker = hand(runtime, "W")
    silence(dba, worker, 130)
    sweep(runtime, dba)
    sweep(runtime, dba)
    assert notices(dba) == 1
    other = hand(runtime, "V")
    silence(dba, other, 130)
    sweep(runtime, dba)
    assert notices(dba) == 2
    silence(dba, worker, 0)
    sweep(runtime, dba)
    silence(dba, worker, 130)
    sweep(runtime, dba)
    assert notices(dba) == 3  # it recovered in between: that is news


def notices(dba: Dba) -> int:
    (count,) = dba.execute("SELECT count(*) FROM effects WHERE name = 'notice'").fetchone() or (0,)
    return int(count)


def sweep(runtime: Runtime, dba: Dba) -> int | None:
    dba.execute("DELETE FROM sweeps")
    return sweeping.run(runtime, "stuck")


# The command -----------------------------------------------------------------------------------------------------


def test_the_command_tells_the_same_to_people_and_programs(runtime: Runtime, client: Client, project: UUID) -> None:
    here = terminal(runtime)
    assert (here.run("stuck").code, here.run("stuck", "--json").json) == (0, [])
    story = client.create("story", "S-1", project_id=project)["id"]
    told = here.run("stuck", "--all")
    assert told.code == 0
    assert f'$ interlock fire {story} design_complete --by "$USER"' in told.out
    (row,) = here.run("stuck", "--all", "--json").json
    assert (row["entity_id"], row["state"], row["workflow_id"]) == ("S-1", "analysis", str(story))
    assert here.run("stuck", "--type", "nonsense").code == 2


def test_the_command_exits_1_when_something_is_stuck(runtime: Runtime, client: Client, dba: Dba) -> None:
    silence(dba, hand(runtime), 130)
    assert terminal(runtime).run("stuck").code == 1
