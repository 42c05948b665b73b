"""Who stands still is found once they do so for too long, kept by the sweep, and told by the command (RECOVER-3)."""

from collections.abc import Callable
from uuid import UUID

import pytest

from interlock.workers.circuit_breakers import calling
from interlock.workers.client.client import Client
from interlock.workers.operations import metrics
from interlock.workers.runtime import Runtime
from tests.crewing import Site, hand, silence, take
from tests.doctoring import examined
from tests.driving import applied, drain_all, make_due, state, swept
from tests.legacy import rename
from tests.rights import fire
from tests.running import Stage
from tests.stuck import age, look, terminal

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"
HALF_AN_HOUR, HOUR, DAY = 1800.0, 3600.0, 86_400.0


# Thresholds ------------------------------------------------------------------------------------------------------


def test_a_task_is_stuck_once_it_has_run_for_half_an_hour(runtime: Runtime, site: Site, dba: Dba) -> None:
    (task,) = site.queue()
    take(runtime, hand(runtime))
    age(dba, task, HALF_AN_HOUR - 5)
    assert look(runtime) == []
    age(dba, task, HALF_AN_HOUR + 1)
    (only,) = look(runtime)
    assert (only.workflow_id, only.state) == (task, "running")


@pytest.mark.promise("O14")
def test_a_long_task_and_its_workstream_and_run_are_healthy_within_its_own_time_limit(
    stage: Stage, runtime: Runtime, dba: Dba
) -> None:
    stage.submit({"w": {}}, {"t": {"workstream": "w", "timeout_sec": 40 * HOUR}})
    stage.start()
    stage.begin("t")
    for each in ("w", "t"):
        age(dba, stage.ids[each], 39 * HOUR)
    age(dba, stage.run, 39 * HOUR)
    assert look(runtime) == []
    told = {each.workflow_id: each for each in look(runtime, everything=True)}
    assert {each: told[each].command for each in (stage.ids["t"], stage.ids["w"])} == {
        each: f"interlock show {each}" for each in (stage.ids["t"], stage.ids["w"])
    }
    age(dba, stage.ids["t"], 40 * HOUR + 1)
    assert {each.workflow_type for each in look(runtime)} == {"task", "run", "workstream"}


def test_a_workstream_is_stuck_once_none_of_its_tasks_has_moved_for_an_hour(
    stage: Stage, runtime: Runtime, dba: Dba
) -> None:
    stage.submit({"w": {}}, {"t": {"workstream": "w"}, "next": {"workstream": "w", "depends_on": ["t"]}})
    stage.start()
    stage.begin("t")
    age(dba, stage.ids["w"], HOUR + 1)
    for each in ("t", "next"):
        age(dba, stage.ids[each], HOUR - 5)
    assert stage.ids["w"] not in {each.workflow_id for each in look(runtime)}
    for each in ("t", "next"):
        age(dba, stage.ids[each], HOUR + 1)
    assert stage.ids["w"] in {each.workflow_id for each in look(runtime)}


def test_everything_else_has_a_day_unless_it_is_at_rest_or_at_an_end(
    runtime: Runtime, client: Client, project: str, dba: Dba
) -> None:
    story = client.create("story", "S-1", project=project)["id"]
    ended = client.create("uet_worker", "U-1", project=project)["id"]
    at_rest = client.create("supervised_worker", "V-1", project=project)["id"]
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '2 days'")
    assert {each.workflow_id for each in look(runtime)} == {story, ended}
    applied(client, story, "block")
    assert {each.workflow_id for each in look(runtime)} == {ended}
    assert at_rest not in {each.workflow_id for each in look(runtime, everything=True)}
    assert story in {each.workflow_id for each in look(runtime, everything=True)}


def test_a_sprint_runs_for_weeks_and_a_breaker_waits_for_its_next_caller(
    make_runtime: Callable[..., Runtime], project: str, dba: Dba
) -> None:
    runtime = make_runtime(breaker_failure_threshold=1)
    client = Client(runtime)
    sprint = client.create("sprint", "SP-1", project=project, context={"author": "ann"})["id"]
    fire(client, sprint, "start", by="ann")
    with calling(runtime, project, "pytest") as call:
        call.failed("it hangs")
    drain_all(runtime)
    (held,) = look(runtime, everything=True, type_="approval")
    applied(client, held.workflow_id, "approve", by="bob")
    make_due(dba, "cooldown_expires")
    dba.execute("UPDATE trigger_requests SET status = 'pending' WHERE trigger = 'cooldown_expires'")
    drain_all(runtime)
    assert (state(client, sprint), state(client, "circuit_breaker/pytest")) == ("active", "HALF_OPEN")
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '2 days'")
    assert look(runtime) == []


@pytest.mark.promise("O14")
def test_a_definition_of_yours_says_where_its_instances_may_rest(
    knowing: Callable[..., Runtime], project: str, dba: Dba
) -> None:
    runtime = knowing("tests.machines")
    client = Client(runtime)
    turnstile = client.create("turnstile", "T-1", project=project)["id"]
    age(dba, turnstile, 2 * DAY)
    assert look(runtime, everything=True) == []
    applied(client, turnstile, "coin")
    age(dba, turnstile, 2 * DAY)
    assert [each.workflow_id for each in look(runtime)] == [turnstile]


def test_what_only_waits_is_offered_nothing_that_would_end_it(
    runtime: Runtime, client: Client, project: str, dba: Dba
) -> None:
    run = client.create("run", "by-hand", project=project)["id"]
    (waits,) = look(runtime, everything=True)
    assert waits.command == f"interlock show {run}"
    age(dba, run, DAY + 1)
    for everything in (True, False):
        (late,) = look(runtime, everything=everything)
        assert late.command.startswith(f"interlock fire {run} cancel ")


def test_a_suspended_worker_is_measured_by_a_day_and_not_by_its_heartbeats(
    runtime: Runtime, client: Client, dba: Dba
) -> None:
    worker = hand(runtime, "W")
    applied(client, worker, "suspend")
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '25 hours'")
    assert sweep(runtime, dba) == 1
    dba.execute("UPDATE stuck_entities SET since = now() - interval '25 hours'")
    overrun = metrics.read(runtime)["interlock_stuck_overrun", ("worker", "suspended")]
    assert overrun == pytest.approx(25 / 24, abs=0.01)


def test_a_threshold_of_0_is_off(make_runtime: Callable[..., Runtime], site: Site, client: Client, dba: Dba) -> None:
    site.queue()
    dba.execute("UPDATE workflow_instances SET updated_at = now() - interval '99 days'")
    every = ("stuck_task_seconds", "stuck_workstream_seconds", "stuck_due_seconds", "stuck_seconds")
    off = make_runtime(**dict.fromkeys(every, 0.0))
    assert look(off) == []
    assert look(make_runtime()) != []


def test_only_what_is_asked_for_is_told(runtime: Runtime, client: Client, project: str, site: Site) -> None:
    other = client.create("story", "S-1", project=UUID(int=7))["id"]
    site.queue()
    assert {each.workflow_type for each in look(runtime, everything=True, type_="task")} == {"task"}
    assert [each.workflow_id for each in look(runtime, everything=True, project=str(UUID(int=7)))] == [other]
    assert len(look(runtime, everything=True, limit=1)) == 1


# The sweep -------------------------------------------------------------------------------------------------------


def test_the_sweep_keeps_what_it_found_and_the_doctor_tells_it(
    runtime: Runtime, client: Client, site: Site, dba: Dba
) -> None:
    worker = hand(runtime, "W")
    silence(dba, worker, 130)
    assert sweep(runtime, dba) == 1
    (finding,) = examined(runtime, "stuck")
    assert (finding.level, finding.message) == ("warn", "stuck: 1 worker")
    silence(dba, worker, 0)
    assert sweep(runtime, dba) == 0
    (finding,) = examined(runtime, "stuck")
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


def test_a_notice_has_one_line_for_each_whatever_it_is_called(make_runtime: Callable[..., Runtime], dba: Dba) -> None:
    runtime = make_runtime(notify_urls=("json://127.0.0.1:9",))
    worker = hand(runtime, "W")
    rename(dba, worker, "W\nall is well")
    silence(dba, worker, 130)
    sweep(runtime, dba)
    (says,) = dba.execute("SELECT payload->>'message' FROM effects WHERE name = 'notice'").fetchone() or ("",)
    assert says.count("\n") == 0
    assert "has been idle for" in says


def notices(dba: Dba) -> int:
    (count,) = dba.execute("SELECT count(*) FROM effects WHERE name = 'notice'").fetchone() or (0,)
    return int(count)


def sweep(runtime: Runtime, dba: Dba) -> int | None:
    dba.execute("DELETE FROM sweeps")
    return swept(runtime, "stuck")


# The command -----------------------------------------------------------------------------------------------------


def test_the_command_tells_the_same_to_people_and_programs(runtime: Runtime, client: Client, project: str) -> None:
    here = terminal(runtime)
    assert (here.run("stuck").code, here.run("stuck", "--json").json) == (0, [])
    story = client.create("story", "S-1", project=project)["id"]
    told = here.run("stuck", "--all")
    assert told.code == 0
    assert f'$ interlock fire {story} design_complete --by "$(id -un)"' in told.out
    (row,) = here.run("stuck", "--all", "--json").json
    assert (row["entity_id"], row["state"], row["workflow_id"]) == ("S-1", "analysis", str(story))
    assert here.run("stuck", "--type", "nonsense").code == 2


def test_the_command_says_how_many_it_does_not_show(runtime: Runtime, client: Client, project: str) -> None:
    client.create_many([client.birth("story", f"S-{number}", project=project) for number in range(3)])
    here = terminal(runtime)
    told = here.run("stuck", "--all", "--limit", "2")
    assert told.out.count("$ interlock fire") == 2
    assert told.out.splitlines()[-1] == "the longest 2 of 3 (waiting): --limit shows more"
    assert "longest" not in here.run("stuck", "--all").out


def test_a_name_cannot_forge_a_line_of_the_answer(runtime: Runtime, client: Client, project: str, dba: Dba) -> None:
    rename(dba, client.create("story", "S-1", project=project)["id"], "S-1\n  $ rm -rf ~\x1b[2J")
    told = terminal(runtime).run("stuck", "--all").out
    assert [line for line in told.splitlines() if line.startswith("  $ rm")] == []
    assert "\x1b" not in told


def test_the_command_exits_1_when_something_is_stuck(runtime: Runtime, client: Client, dba: Dba) -> None:
    silence(dba, hand(runtime), 130)
    assert terminal(runtime).run("stuck").code == 1
