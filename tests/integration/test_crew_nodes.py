"""The crew as an operator runs it: real Celery nodes and processes, killed and stopped in the middle of their work."""

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psutil
import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from interlock.db.connection import transaction
from interlock.db.orchestration import scheduling
from interlock.workers import sweeps
from interlock.workers.client.client import Client
from interlock.workers.isolation import in_force
from interlock.workers.operations import doctor
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.pool import claims
from interlock.workers.pool.registration import Registration
from interlock.workers.pool.report import Report
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from tests.callers import FORKS
from tests.crewing import Site, hand, row
from tests.driving import drain_all, state, trail
from tests.nodes import CELERY, Node, node
from tests.rights import known
from tests.waiting import eventually

T = TypeVar("T")

pytestmark = pytest.mark.integration
PROCESSES, TASKS = 8, 200
QUICK = {"sandbox": "off", "heartbeat_seconds": 1.0, "recovery_seconds": 4.0, "drain_seconds": 1.0}
PATIENCE = 60.0
WORKING = ("worker", "-Q", "work", "-c", "1")


@pytest.fixture
def quick(settings: Settings) -> Settings:
    """Settings under which silence is noticed in seconds."""
    return settings.model_copy(update=QUICK)


@pytest.fixture
def triggers(quick: Settings, tmp_path: Path) -> Iterator[Node]:
    """A node that applies triggers."""
    with node(quick, tmp_path, "worker", "-Q", "triggers", "-c", "1") as started:
        yield started


@pytest.fixture
def engine(client: Client) -> Iterator[None]:
    """A thread that applies triggers and schedules runs: here it does not matter which process does."""
    runtime, over = client.runtime, threading.Event()

    def carry_on() -> None:
        while not over.wait(0.2):
            with suppress(OperationalError):  # a deadlock, after which a node tries again as well
                drain_all(runtime)
                with transaction(runtime.database) as connection:
                    runs = scheduling.runs_signalled(connection, limit=10)
                for run in runs:
                    schedule(runtime, run)

    thread = threading.Thread(target=carry_on)
    thread.start()
    yield
    over.set()
    thread.join()


def working(settings: Settings, directory: Path, *words: str) -> Any:
    """A node whose process is a worker."""
    return node(settings, directory, *WORKING, *words)


def in_container(settings: Settings, directory: Path) -> Any:
    """The same, with the SIGTERM of a container's node, which Celery reads once. The supervisor sends SIGQUIT."""
    return node(settings, directory, *WORKING, program=CELERY, REMAP_SIGTERM="SIGQUIT")


def sweeping_until(found: Callable[[], T], runtime: Runtime, dba: "psycopg.Connection[Any]") -> T:
    """Run the sweeps that beat would, until something is so."""

    def swept() -> T:
        for name in ("heartbeats", "dispatch"):
            dba.execute("DELETE FROM sweeps WHERE name = %s", (name,))
            sweeps.run(runtime, name)
        return found()

    return eventually(swept, PATIENCE)


def slow(place: Path) -> list[str]:
    """A command that notes its beginning, waits until `go` is there, and notes its end."""
    script = f"""
import os, time
place = {str(place)!r}
open(f"{{place}}/begun-{{os.getpid()}}", "w").close()
while not os.path.exists(f"{{place}}/go"):
    time.sleep(0.02)
open(f"{{place}}/ended-{{os.getpid()}}", "w").close()
"""
    return ["python3", "-c", script]


def noted(place: Path, what: str) -> list[int]:
    return [int(each.name.partition("-")[2]) for each in place.glob(f"{what}-*")]


def test_eight_processes_claim_two_hundred_tasks_each_once(
    settings: Settings, client: Client, project: str, dba: "psycopg.Connection[Any]"
) -> None:
    """TASK-16."""
    site = Site(client, project)
    site.queue(TASKS)
    workers = [hand(client.runtime, f"p{number}") for number in range(PROCESSES)]
    begin, taken = FORKS.Barrier(PROCESSES), FORKS.Queue()
    processes = [FORKS.Process(target=_claim_all, args=(settings, known(each), begin, taken)) for each in workers]
    for process in processes:
        process.start()
    found = [each for _ in processes for each in taken.get(timeout=PATIENCE)]
    for process in processes:
        process.join()
    taken.close()
    taken.join_thread()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    assert len(found) == TASKS
    assert len(set(found)) == TASKS
    counted = dba.execute("SELECT count(*), count(DISTINCT task_id), count(ended_at) FROM task_claims")
    assert counted.fetchone() == (TASKS, TASKS, TASKS)


def _claim_all(settings: Settings, worker: Registration, begin: Any, taken: Any) -> None:
    """What one process does: claim and finish until nothing is left."""
    runtime, mine = Runtime(settings), []
    begin.wait()
    while claim := claims.take(runtime, worker):
        mine.append(claim.task_id)
        claims.finish(runtime, worker, claim.token, Report("execution_completed", {"exit_code": 0}))
    runtime.close()
    taken.put(mine)


@pytest.mark.usefixtures("triggers")
def test_pool_processes_enlist_work_and_leave(
    quick: Settings, client: Client, project: str, dba: "psycopg.Connection[Any]", tmp_path: Path
) -> None:
    site = Site(client, project)
    with working(quick, tmp_path, "-c", "2") as started:
        crew = eventually(lambda: _idle(dba, 2), PATIENCE)
        tasks = site.submit(6, required_capabilities=["python"])
        _all_completed(client, tasks)
        said = client.history(tasks[0])[2]["metadata"]
        assert said["stdout"] == "done\n"
        assert said["exit_code"] == 0
        eventually(lambda: _idle(dba, 2), PATIENCE)
        started.process.send_signal(signal.SIGQUIT)
        started.process.wait(PATIENCE)
    eventually(lambda: {state(client, each) for each in crew} == {"shutdown"}, PATIENCE)


@pytest.mark.usefixtures("engine")
def test_a_task_whose_process_is_killed_is_carried_out_elsewhere_and_ends_once(
    quick: Settings, make_runtime: Any, project: str, dba: "psycopg.Connection[Any]", tmp_path: Path
) -> None:
    runtime = make_runtime(**QUICK)
    client = Client(runtime)
    with working(quick, tmp_path) as doomed:
        eventually(lambda: _idle(dba, 1), PATIENCE)
        (task,) = Site(client, project).submit(1, command=slow(tmp_path), backoff={"base": 0})
        (first,) = eventually(lambda: noted(tmp_path, "begun"), PATIENCE)
        lost = row(dba, "tasks", task)["worker_id"]
        doomed.kill()
    eventually(lambda: not psutil.pid_exists(first), PATIENCE)
    with working(quick, tmp_path):
        sweeping_until(lambda: noted(tmp_path, "begun")[1:], runtime, dba)
        (tmp_path / "go").touch()
        eventually(lambda: state(client, task) == "completed", PATIENCE)
        assert len(noted(tmp_path, "ended")) == 1
        assert first not in noted(tmp_path, "ended")
        sweeping_until(lambda: state(client, lost) == "shutdown", runtime, dba)
    assert trail(client, task)[:6] == [
        "scheduler_assigned",
        "worker_started",
        "execution_failed",
        "retry_delay_elapsed",
        "worker_started",
        "execution_completed",
    ]
    # Here heartbeats are so frequent that its silence may be noticed before its process is missed.
    assert re.search("was killed|fell silent", client.history(task)[2]["metadata"]["reason"])
    assert {"health_check_timeout", "max_timeout_exceeded"} <= set(trail(client, lost))


def _at_work(client: Client, project: str, dba: "psycopg.Connection[Any]", folder: Path) -> tuple[UUID, UUID]:
    """The only worker and the task that it has begun, whose retry would come in ten minutes."""
    (worker,) = eventually(lambda: _idle(dba, 1), PATIENCE)
    (task,) = Site(client, project).submit(1, command=slow(folder), backoff={"base": 600})
    eventually(lambda: noted(folder, "begun"), PATIENCE)
    return worker, task


def _is_given_back(client: Client, worker: UUID, task: UUID, why: str) -> None:
    eventually(lambda: state(client, task) == "retrying", PATIENCE)
    eventually(lambda: state(client, worker) == "shutdown", PATIENCE)
    assert why in client.history(task)[-1]["metadata"]["reason"]


@pytest.mark.usefixtures("engine")
def test_a_killed_node_is_noticed_by_the_one_that_takes_its_place(
    settings: Settings, client: Client, project: str, dba: "psycopg.Connection[Any]", tmp_path: Path
) -> None:
    """Long before its silence is: heartbeats are due every minute here."""
    with working(settings, tmp_path) as doomed:
        worker, task = _at_work(client, project, dba, tmp_path)
        doomed.kill()
    with working(settings, tmp_path):
        _is_given_back(client, worker, task, "was killed")


@pytest.mark.usefixtures("engine")
def test_a_killed_pool_process_is_noticed_by_the_one_that_takes_its_place(
    settings: Settings, client: Client, project: str, dba: "psycopg.Connection[Any]", tmp_path: Path
) -> None:
    """Long before its silence is: heartbeats are due every minute here."""
    with working(settings, tmp_path):
        worker, task = _at_work(client, project, dba, tmp_path)
        os.kill(client.show(worker)["context"]["pid"], signal.SIGKILL)
        _is_given_back(client, worker, task, "was killed")


@pytest.mark.usefixtures("engine")
def test_a_stopped_node_gives_back_what_outlasts_its_patience(
    quick: Settings, client: Client, project: str, dba: "psycopg.Connection[Any]", tmp_path: Path
) -> None:
    with in_container(quick, tmp_path) as stopping:
        worker, task = _at_work(client, project, dba, tmp_path)
        (command,) = noted(tmp_path, "begun")
        stopping.process.send_signal(signal.SIGTERM)
        stopping.process.wait(PATIENCE)
    _is_given_back(client, worker, task, "is shutting down")
    eventually(lambda: not psutil.pid_exists(command), PATIENCE)


@pytest.mark.usefixtures("engine")
def test_a_stopped_node_finishes_what_it_can_and_takes_no_more(
    settings: Settings, client: Client, project: str, dba: "psycopg.Connection[Any]", tmp_path: Path
) -> None:
    patient = settings.model_copy(update={"drain_seconds": 8.0})
    with working(patient, tmp_path) as stopping:
        eventually(lambda: _idle(dba, 1), PATIENCE)
        first, second = Site(client, project).submit(2, command=slow(tmp_path))
        eventually(lambda: noted(tmp_path, "begun"), PATIENCE)
        stopping.process.send_signal(signal.SIGQUIT)
        eventually(lambda: "Initiating Soft Shutdown" in stopping.log.read_text(), PATIENCE)
        (tmp_path / "go").touch()
        eventually(lambda: state(client, first) == "completed", PATIENCE)
        stopping.process.wait(PATIENCE)
    assert state(client, second) == "queued"


def _all_completed(client: Client, tasks: list[UUID]) -> None:
    expected = dict.fromkeys(tasks, "completed")

    def completed() -> bool:
        assert {each: state(client, each) for each in tasks} == expected
        return True

    eventually(completed, PATIENCE)


def _idle(dba: "psycopg.Connection[Any]", count: int) -> list[UUID]:
    """The workers that are idle, once they are so many."""
    found = [each[0] for each in dba.execute("SELECT worker_id FROM workers WHERE state = 'idle' AND NOT draining")]
    return found if len(found) == count else []


@pytest.mark.parametrize("queue", ["work", "gates", "effects"])
def test_doctor_tells_the_workers_sandbox_not_that_of_its_own_settings(
    runtime: Runtime, settings: Settings, queue: str
) -> None:
    (settings.home / "run").mkdir(parents=True, exist_ok=True)
    with node(settings, settings.home / "run", "worker", "-Q", queue, "-c", "1", INTERLOCK_SANDBOX="off") as started:
        eventually(started.ready_file.read_text)
        assert settings.sandbox == "auto"
        ((level, says),) = [(each.level, each.message) for each in doctor.examine(runtime) if each.check == "sandbox"]
        started.ready_file.unlink()
    assert level == "warn"
    assert says.startswith("commands of plans run without a sandbox, as ")
    assert says.endswith(": INTERLOCK_SANDBOX is off")
    assert next(each.message for each in in_force.reported(settings)).endswith("(tested here: no worker has reported)")
