"""What `stuck` and playbooks offer does nothing to an instance that has moved on since it was offered (RECOVER-19)."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.workers.circuit_breakers import calling
from interlock.workers.circuit_breakers import known as breaker_of
from interlock.workers.client.client import Client
from interlock.workers.client.receipts import VersionConflict
from interlock.workers.operations.playbooks import ChangeStep, Step, recover_workstream, reset_circuit_breaker
from interlock.workers.orchestration.submission import submit
from interlock.workers.overrides.phases import freeze, thaw
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workflows.plan.read import read_plan
from tests.cli.terminal import Answer
from tests.crewing import Site, hand, take
from tests.driving import applied, drain_all, make_due, state, swept
from tests.rights import OF_SECRET, SECRET, fire
from tests.running import Stage
from tests.stuck import age, found, terminal

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]
Dba = psycopg.Connection[Any]
WHY = OverrideOrder("ann", "because")
FROZEN = """
name: night
phases: {release: {}}
phase_id: release
workstreams:
  - {id: ship, tasks: [{id: t, command: ["true"]}]}
"""


def late(runtime: Runtime, command: str) -> Answer:
    """Carry out an offered command after the reason for it has gone; it must be refused for the version."""
    for placeholder, word in {"$(id -un)": "ann", "SOMEBODY_ELSE": "bob"}.items():
        command = command.replace(placeholder, word)
    program, *rest = shlex.split(command)
    assert program == "interlock", command
    answer = terminal(runtime).run(*(each for each in rest if each != "--wait"))
    drain_all(runtime)
    return answer


def come(runtime: Runtime, dba: Dba) -> None:
    """Let what was made due be applied."""
    dba.execute("DELETE FROM sweeps")
    swept(runtime, "dispatch")
    drain_all(runtime)


def refused(client: Client, offer: str, ref: str | UUID, stands: str) -> None:
    """It is refused, and what it was offered for stands where it stood."""
    answer = late(client.runtime, offer)
    assert answer.code == 2, answer.said
    assert "and not at version" in answer.said
    assert state(client, ref) == stands


def test_a_phase_that_was_frozen_anew_is_not_thawed_for_the_old_reason(
    runtime: Runtime, client: Client, tmp_path: Path
) -> None:
    run = submit(runtime, read_plan(FROZEN), by="bob", directory=tmp_path)
    drain_all(runtime)
    freeze(runtime, "release", WHY)
    offer = found(runtime, f"{run.name}/ship/t", everything=True).command
    thaw(runtime, "release", WHY)
    freeze(runtime, "release", OverrideOrder("ann", "another incident"))
    refused(client, offer, "phase/release", "frozen")


def test_a_workstream_that_was_paused_anew_is_not_resumed(stage: Stage, runtime: Runtime) -> None:
    stage.submit({"w": {}}, {"t": {"workstream": "w"}, "u": {"workstream": "w"}})
    stage.start()
    stage.begin("t")
    stage.fire("w", "pause")
    offer = found(runtime, stage.ids["u"], everything=True).command
    stage.fire("w", "resume")
    stage.fire("w", "pause")
    late(runtime, offer)
    assert stage.state("w") == "paused"


def test_a_run_that_was_started_meanwhile_is_not_cancelled(stage: Stage, runtime: Runtime) -> None:
    stage.submit({"w": {}}, {"t": {"workstream": "w"}})
    stage.settle()
    offers = {found(runtime, stage.ids[each], everything=True).command for each in "tw"}
    stage.start()
    for each in offers:
        late(runtime, each)
    assert stage.state("run") == "running"


def test_an_approval_that_others_have_voted_on_since_is_looked_at_again(
    runtime: Runtime, client: Client, project: str
) -> None:
    sprint = client.create("sprint", "SP-1", project=project, context={"author": "ann"})["id"]
    fire(client, sprint, "start", by="ann")
    drain_all(runtime)
    offer = found(runtime, sprint, everything=True).command
    assert "approve" in offer
    assert "--if-version 0" in offer


def test_a_worker_that_was_suspended_anew_is_not_resumed(runtime: Runtime, client: Client, site: Site) -> None:
    worker = hand(runtime, "W")
    applied(client, worker, "suspend")
    (task,) = site.queue()
    offers = [found(runtime, each, everything=True).command for each in (task, worker)]
    applied(client, worker, "resume", "suspend")
    for each in offers:
        refused(client, each, worker, "suspended")


def test_a_worker_that_became_ready_meanwhile_is_not_shut_down(
    runtime: Runtime, client: Client, project: str, dba: Dba
) -> None:
    born = client.create("uet_worker", "U", project=project, context=OF_SECRET)["id"]
    age(dba, born, 1e6)
    offer = found(runtime, born).command
    client.fire(born, "initialization_complete", by="U", proof=f"secret:{SECRET}")
    drain_all(runtime)
    refused(client, offer, born, "IDLE")


@pytest.mark.promise("O14")
def test_a_claimed_task_that_was_begun_meanwhile_goes_on(
    runtime: Runtime, client: Client, site: Site, dba: Dba
) -> None:
    worker = hand(runtime, "W")
    (task,) = site.queue()
    dba.execute(
        "INSERT INTO task_claims (task_id, run_id, worker_id, claimed_at)"
        " SELECT task_id, run_id, %s, now() - interval '31 seconds' FROM tasks",
        (worker,),
    )
    offer = found(runtime, task, everything=True).command
    dba.execute("DELETE FROM task_claims")
    dba.execute("UPDATE workers SET current_load = 0")
    take(runtime, worker)
    assert state(client, task) == "running"
    refused(client, offer, task, "running")


@pytest.mark.promise("O14")
def test_a_task_that_another_worker_runs_again_is_not_made_anew(
    runtime: Runtime, client: Client, site: Site, dba: Dba
) -> None:
    (task,) = site.queue()
    take(runtime, hand(runtime, "W"))
    make_due(dba, "timeout_exceeded")
    offer = found(runtime, task, everything=True).command
    assert offer.startswith("interlock override reset-task")
    come(runtime, dba)
    make_due(dba, "retry_delay_elapsed")
    come(runtime, dba)
    take(runtime, hand(runtime, "V"))
    assert state(client, task) == "running"
    refused(client, offer, task, "running")


def asked(steps: Iterator[Step]) -> ChangeStep:
    """The next change that a playbook asks for."""
    return next(each for each in steps if isinstance(each, ChangeStep))


def test_a_playbook_gives_up_only_the_attempt_that_it_has_shown(
    stage: Stage, runtime: Runtime, client: Client, dba: Dba
) -> None:
    stage.submit({"w": {}}, {"t": {"workstream": "w"}})
    stage.start()
    stage.begin("t")
    age(dba, stage.ids["t"], 10_000.0)
    steps = recover_workstream(runtime, str(stage.ids["w"]), WHY)
    asked(steps).perform()
    give_up = asked(steps)
    assert "--if-version" in give_up.command
    make_due(dba, "timeout_exceeded")
    come(runtime, dba)
    assert state(client, stage.ids["t"]) == "retrying"
    with pytest.raises(VersionConflict, match="nothing was changed"):
        give_up.perform()
    assert state(client, stage.ids["t"]) == "retrying"


def test_a_breaker_that_opened_anew_is_not_closed(runtime: Runtime, client: Client, project: str, dba: Dba) -> None:
    breaker = broken(runtime, project)
    make_due(dba, "cooldown_expires")
    come(runtime, dba)
    asking = asked(reset_circuit_breaker(runtime, str(breaker), WHY))
    offer = f"interlock breaker reset make --if-version {client.show(breaker)['version'] - 1} --by ann --reason x"
    assert broken(runtime, project) == breaker
    refused(client, offer, breaker, "OPEN")
    with pytest.raises(VersionConflict):
        asking.perform()
    assert state(client, breaker) == "OPEN"


def broken(runtime: Runtime, project: str) -> UUID:
    """The breaker of `make`, open."""
    while True:
        with calling(runtime, project, "make") as call:
            call.failed("no disk")
        drain_all(runtime)
        if (breaker := breaker_of(runtime, project, "make")).state == "OPEN":
            return breaker.breaker_id
