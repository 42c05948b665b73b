"""A gate's command runs where its workstream works, under its limits and its lease, and always ends the gate."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from interlock.beat import sweeps
from interlock.db.connection import transaction
from interlock.db.core import effects as rows
from interlock.db.core import requests
from interlock.db.orchestration import commands
from interlock.db.orchestration.commands import CommandRow, Origin
from interlock.workers import effect_runner
from interlock.workers.effects import intents
from interlock.workers.effects.holder import pid
from interlock.workers.effects.stored_command import TAIL_BYTES, tail
from interlock.workers.engine import creation
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests.commanding import OPERATOR
from tests.driving import drain_all, state
from tests.landscape import Landscape
from tests.nodes import node
from tests.sleepers import lasting, sleepers
from tests.waiting import eventually

pytestmark = pytest.mark.integration
Dba = "psycopg.Connection[Any]"
LONG_LEASE = {"effect_lease_seconds": 300.0}


def test_a_gate_that_passes_ran_in_its_workstreams_worktree_and_told_its_output(land: Landscape) -> None:
    gate = land.gate(["sh", "-c", "pwd; cat app.py; echo warned >&2"])
    land.settle()
    assert state(land.client, gate) == "PASSED"
    said = land.said(gate)
    assert said["stdout"].splitlines()[:2] == [str(land.place.path), "one"]
    assert (said["stderr"], said["exit_code"], said["effect"]) == ("warned\n", 0, "run_gate")
    row = land.dba.execute("SELECT exit_code, stdout, stderr, duration_sec FROM test_gates").fetchone()
    assert row == (0, said["stdout"], "warned\n", said["duration_sec"])


def test_a_gate_without_a_workstream_fails_and_says_so(land: Landscape) -> None:
    said = {"gate_type": "UNIT", "name": "alone"}
    land.dba.execute("ALTER TABLE commands DISABLE TRIGGER USER")  # which give such a gate no command
    birth = land.client.birth("test_gate", "alone", project=land.project, context=said)
    gate, row = birth.id, CommandRow("command", ("pwd",))
    with transaction(land.runtime.database) as connection:
        creation.deliver(connection, [birth])
        commands.store(connection, land.run, {gate: row}, Origin("operator", OPERATOR, "a test"))
        rows.intend(connection, [intents.of_gate(gate, 0)])
    land.settle()
    assert state(land.client, gate) == "FAILED"
    assert "it belongs to no workstream" in land.said(gate)["reason"]


# Of gates that do not pass: the command, its terms, the exit code that is told, and a part of the reason.
FAILING: tuple[tuple[list[str], dict[str, Any], int, str], ...] = (
    (["sh", "-c", "exit 3"], {}, 3, "exit code 3"),
    (["no-such-program"], {}, 127, "no-such-program"),
    (["/"], {}, 126, "/"),
    (["sleep", "60"], {"timeout_sec": 0.3}, 124, "timed out"),
    (["sh", "-c", "kill -9 $$"], {}, 137, "SIGKILL"),
    (["true"], {"expected_exit_codes": [1]}, 0, "exit code 0"),
    (["true"], {"cwd": "no/such/folder"}, 126, "no/such/folder"),
    ([""], {}, 126, "cannot be run"),
)


def test_a_gate_that_does_not_pass_fails_with_its_code_and_the_reason(land: Landscape) -> None:
    gates = [land.gate(command, f"g{number}", **terms) for number, (command, terms, *_) in enumerate(FAILING)]
    land.settle()
    for gate, (command, terms, code, reason) in zip(gates, FAILING, strict=True):
        said = land.said(gate)
        assert (state(land.client, gate), said["exit_code"]) == ("FAILED", code), (command, terms, said)
        assert reason in said["reason"]


def test_an_unexpected_code_may_be_the_expected_one_and_a_text_may_be_a_shells_line(land: Landscape) -> None:
    gate = land.gate("exit $WANTED", shell=True, env={"WANTED": "5"}, expected_exit_codes=[5, 6])  # noqa: S604 - its point
    land.settle()
    assert state(land.client, gate) == "PASSED"


def test_a_gate_of_a_plan_without_repository_runs_in_the_plans_folder(
    runtime: Runtime, dba: Dba, tmp_path: Path
) -> None:
    land = Landscape(runtime, dba, tmp_path, repository=None)
    gate = land.gate("ls", cwd="repo")
    land.settle()
    assert land.said(gate)["stdout"] == "app.py\ndocs\n"


def test_a_repository_that_is_gone_fails_the_gate_and_says_so(land: Landscape) -> None:
    (land.checkout / ".git").rename(land.checkout / ".gone")
    gate = land.gate(["true"])
    land.settle()
    assert state(land.client, gate) == "FAILED"
    assert "git init" in land.said(gate)["reason"]


def test_of_output_without_end_the_end_is_told(land: Landscape) -> None:
    gate = land.gate(["sh", "-c", r"yes | head -c 3000000; printf '\377\000end'"])
    land.settle()
    said = land.said(gate)["stdout"]
    assert said.endswith("end")
    assert TAIL_BYTES - 4 <= len(said.encode()) <= TAIL_BYTES


def test_a_tail_never_splits_a_letter() -> None:
    assert tail("äö", 3) == "ö"
    assert tail("äö", 4) == "äö"


def test_a_gate_whose_workers_all_died_fails_with_exit_code_70(
    make_runtime: Callable[..., Runtime], dba: Dba, tmp_path: Path
) -> None:
    land = Landscape(make_runtime(max_attempts=2), dba, tmp_path)
    gate = land.gate(["true"])
    for _ in range(2):
        with transaction(land.runtime.database) as connection:
            assert rows.claim(connection, land.effect(gate, "run_gate")["id"], holder="dead", lease_seconds=60)
        dba.execute("UPDATE effects SET lease_until = now() - interval '1 s' WHERE status = 'leased'")
        with transaction(land.runtime.database) as connection:
            sweeps.leases(connection, max_attempts=2, own_attempts={})
    drain_all(land.runtime)
    assert state(land.client, gate) == "FAILED"  # nothing waits for ever
    assert (land.said(gate)["exit_code"], land.said(gate)["reason"]) == (70, "lease expired: its worker went silent")


def test_a_lease_is_renewed_for_as_long_as_the_command_runs(
    make_runtime: Callable[..., Runtime], dba: Dba, tmp_path: Path
) -> None:
    land = Landscape(make_runtime(effect_lease_seconds=4.0), dba, tmp_path)
    gate = land.gate(["sleep", "7"])
    land.settle()
    assert state(land.client, gate) == "PASSED"
    assert land.effect(gate, "run_gate")["attempts"] == 1


def test_who_loses_the_lease_kills_the_command_and_reports_nothing(
    make_runtime: Callable[..., Runtime], dba: Dba, tmp_path: Path
) -> None:
    land = Landscape(make_runtime(effect_lease_seconds=3.0), dba, tmp_path)
    gate = land.gate(["sleep", lasting(98.7)])
    effect_id = land.effect(gate, "run_gate")["id"]
    running = threading.Thread(target=effect_runner.run, args=(land.runtime, effect_id))
    running.start()
    eventually(lambda: sleepers(lasting(98.7)))
    dba.execute("UPDATE effects SET token = token + 1 WHERE id = %s", (effect_id,))  # as if taken back and leased anew
    running.join(timeout=30)
    assert not running.is_alive()
    assert not sleepers(lasting(98.7))
    assert land.effect(gate, "run_gate")["status"] == "leased"
    assert drain_all(land.runtime) == 0


@pytest.mark.parametrize(("seconds", "over", "outcome"), [(97.6, "workstream", "cancelled"), (97.5, "run", "canceled")])
@pytest.mark.promise("O11")
def test_a_running_gate_of_a_workstream_or_run_that_ends_is_stopped_and_cancelled(
    land: Landscape, seconds: float, over: str, outcome: str
) -> None:
    gate = land.gate(["sleep", lasting(seconds)])
    with _running(land, gate, lasting(seconds)):
        if over == "run":
            land.fire(land.run, "start")
            land.fire(land.run, "cancel", reason="enough")
        else:
            land.fire(land.workstream, "cancel")
        while schedule(land.runtime, land.run) or drain_all(land.runtime):
            pass
    assert (state(land.client, gate), land.said(gate)["reason"]) == ("CANCELLED", f"its {over} is {outcome}")
    assert land.effect(gate, "run_gate")["result"] == {"left_alone": "CANCELLED"}


@pytest.mark.promise("O10")
def test_a_gate_that_no_node_reports_on_fails_at_its_deadline_and_its_command_is_stopped(land: Landscape) -> None:
    gate = land.gate(["sleep", lasting(97.4)], timeout_sec=300)
    with _running(land, gate, lasting(97.4)):
        deadline = "trigger_requests WHERE workflow_id = %s AND status = 'scheduled'"
        left = land.dba.execute(f"SELECT extract(epoch FROM not_before - now()) FROM {deadline}", (gate,)).fetchone()
        assert left
        assert 340 < left[0] <= 360  # its own limit, and a minute more for the node that runs it
        land.dba.execute(f"UPDATE {deadline.replace(' WHERE', ' SET not_before = now() WHERE')}", (gate,))
        with transaction(land.runtime.database) as connection:
            requests.wake(connection, limit=10)
        drain_all(land.runtime)
    assert state(land.client, gate) == "FAILED"
    assert land.dba.execute("SELECT exit_code FROM test_gates WHERE gate_id = %s", (gate,)).fetchone() == (124,)


def test_a_gate_that_ended_before_a_node_was_free_is_not_run(land: Landscape) -> None:
    gate = land.gate(["sh", "-c", "touch ran"])
    land.fire(gate, "cancel", reason="its run is canceled")
    land.settle()
    assert state(land.client, gate) == "CANCELLED"
    assert not (land.place.path / "ran").exists()


@pytest.fixture
def leased_long(
    settings: Settings, make_runtime: Callable[..., Runtime], dba: Dba, tmp_path: Path
) -> tuple[Landscape, Settings]:
    """A landscape whose effects keep their leases for longer than a test takes, and its nodes' settings."""
    return Landscape(make_runtime(**LONG_LEASE), dba, tmp_path), settings.model_copy(update=LONG_LEASE)


@pytest.mark.promise("O11")
def test_a_gate_whose_process_is_killed_is_run_again_at_once(
    leased_long: tuple[Landscape, Settings], tmp_path: Path
) -> None:
    land, chosen = leased_long
    with node(chosen, tmp_path, "worker", "-Q", "gates", "-c", "1"):
        gate = land.gate(f"test -e ran && exit 0; touch ran; exec sleep {lasting(97.3)}", shell=True)  # noqa: S604 - its point
        eventually(lambda: sleepers(lasting(97.3)), timeout=30)
        os.kill(pid(land.effect(gate, "run_gate")["leased_by"]), signal.SIGKILL)
        eventually(lambda: land.effect(gate, "run_gate")["status"] == "done", timeout=30)
    drain_all(land.runtime)
    assert land.effect(gate, "run_gate")["attempts"] == 2
    moves = [(event["from_state"], event["to_state"]) for event in land.client.history(gate)]
    assert moves == [("PENDING", "RUNNING"), ("RUNNING", "PASSED")]


@pytest.mark.promise("O11")
def test_a_gate_whose_node_is_killed_is_run_again_by_the_node_that_takes_its_place(
    leased_long: tuple[Landscape, Settings], tmp_path: Path
) -> None:
    """Long before its lease ends, as a killed node's tasks."""
    land, chosen = leased_long
    gate = land.gate(f"test -e ran && exit 0; touch ran; exec sleep {lasting(96.3)}", shell=True)  # noqa: S604 - its point
    with node(chosen, tmp_path, "worker", "-Q", "gates", "-c", "2") as doomed:
        eventually(lambda: sleepers(lasting(96.3)), timeout=30)
        doomed.kill()
    eventually(lambda: not sleepers(lasting(96.3)))
    assert land.effect(gate, "run_gate")["status"] == "leased"
    with node(chosen, tmp_path, "worker", "-Q", "gates", "-c", "2"):
        eventually(lambda: land.effect(gate, "run_gate")["status"] == "done", timeout=30)
    drain_all(land.runtime)
    assert state(land.client, gate) == "PASSED"


@pytest.mark.promise("O11")
def test_the_workers_of_a_machine_give_back_the_gates_of_its_killed_nodes(
    settings: Settings, make_runtime: Callable[..., Runtime], dba: Dba, tmp_path: Path
) -> None:
    """At a heartbeat, though no other node for gates takes that one's place."""
    lease = {**LONG_LEASE, "heartbeat_seconds": 2.0}
    land = Landscape(make_runtime(**lease), dba, tmp_path)
    chosen = settings.model_copy(update=lease)
    gate = land.gate(["sleep", lasting(95.3)])
    with node(chosen, tmp_path, "worker", "-Q", "work", "-c", "2"):
        with node(chosen, tmp_path, "worker", "-Q", "gates", "-c", "1") as doomed:
            eventually(lambda: sleepers(lasting(95.3)), timeout=30)
            doomed.kill()
        eventually(lambda: land.effect(gate, "run_gate")["status"] == "pending", timeout=30)
    assert land.effect(gate, "run_gate")["error"] == "its worker was killed"


@pytest.mark.promise("O10")
def test_celery_runs_a_gate_for_longer_than_its_lease_while_notices_go_on(
    settings: Settings, make_runtime: Callable[..., Runtime], dba: Dba, tmp_path: Path
) -> None:
    lease, longer = 4.0, "10"
    chosen = settings.model_copy(update={"effect_lease_seconds": lease})
    land = Landscape(make_runtime(effect_lease_seconds=lease), dba, tmp_path)
    with (
        node(chosen, tmp_path, "worker", "-Q", "triggers,sweeps,effects", "-c", "1"),
        node(chosen, tmp_path, "worker", "-Q", "gates", "-c", "1"),
    ):
        slow, next_ = land.gate(["sleep", longer], "slow"), land.gate(["true"], "next")
        entry = land.patch("no diff")  # its check is an effect, on the other queue
        eventually(lambda: state(land.client, entry) == "quarantined", timeout=30)
        eventually(lambda: state(land.client, slow) == "RUNNING")
        assert state(land.client, next_) == "PENDING"  # the one process is taken
        eventually(lambda: state(land.client, next_) == "PASSED", timeout=30)
    assert state(land.client, slow) == "PASSED"
    assert land.effect(slow, "run_gate")["attempts"] == 1


@contextmanager
def _running(land: Landscape, gate: UUID, seconds: str) -> Iterator[None]:
    """A block during which the gate's `sleep` runs; it must end that."""
    running = threading.Thread(target=effect_runner.run, args=(land.runtime, land.effect(gate, "run_gate")["id"]))
    running.start()
    eventually(lambda: sleepers(seconds))
    yield
    running.join(timeout=30)
    assert not running.is_alive()
    assert not sleepers(seconds)
