"""What supervised workers and jobs are held to: capacity, tasks, retries, descriptions, time limits, heartbeats."""

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.supervision.actions import ActionOrder
from interlock.workers.supervision.jobs import Jobs
from interlock.workers.supervision.recovery import JobError, WorkerError, recover_job, recover_worker
from interlock.workers.supervision.supervised_workers import Supervisor
from interlock.workflows.errors import BadInput, IllegalTransition, NotYours, RequestConflict
from tests import crewing
from tests.driving import drain_all, make_due, trail
from tests.stuck import age, found, look, paste

pytestmark = pytest.mark.integration
Dba = psycopg.Connection[Any]
DAY = 86_400.0
MISSED = 121  # seconds: two heartbeats of 60 s, and one more
MINE = ActionOrder("ann", "why")


@pytest.fixture
def supervisor(client: Client) -> Supervisor:
    return Supervisor(client)


@pytest.fixture
def jobs(client: Client) -> Jobs:
    return Jobs(client)


def new(supervisor: Supervisor, **said: Any) -> UUID:
    made: UUID = supervisor.create(order=MINE, **said).subject["id"]
    return made


@pytest.mark.promise("O17")
def test_a_worker_is_given_no_more_tasks_than_its_capacity(supervisor: Supervisor) -> None:
    """SUPERVISED-8."""
    worker = new(supervisor, capacity=2)
    for tasks in (["a", "b", "c"], ["a", "a"]):
        with pytest.raises(IllegalTransition, match="no more than the worker's capacity"):
            supervisor.start(worker, MINE, tasks=tasks)
    assert supervisor.start(worker, MINE, tasks=["a", "b"]).subject["tasks"] == ["a", "b"]
    with pytest.raises(IllegalTransition, match="capacity"):
        supervisor.start(new(supervisor), MINE, tasks=["a", "b"])  # one, unless it says more
    with pytest.raises(BadInput, match="capacity must be"):
        new(supervisor, capacity=0)


@pytest.mark.promise("O17")
def test_it_completes_once_every_task_is_done(supervisor: Supervisor) -> None:
    worker = new(supervisor, capacity=2)
    supervisor.start(worker, MINE, tasks=["a", "b"])
    for done in (None, ["a"]):
        with pytest.raises(IllegalTransition, match="completed_tasks"):
            supervisor.complete(worker, MINE, tasks=done)
    assert supervisor.complete(worker, MINE, tasks=["b", "a"]).subject["status"] == "COMPLETED"


@pytest.mark.promise("O17")
def test_an_error_that_can_be_retried_fails_it_only_after_three_retries(client: Client, supervisor: Supervisor) -> None:
    worker = new(supervisor)
    supervisor.start(worker, MINE)
    for attempt in (1, 2, 3):
        with pytest.raises(IllegalTransition, match="the error can be retried"):
            supervisor.fail(worker, MINE, error="reset", retryable=True)
        assert recover_worker(client, worker, WorkerError.TRANSIENT_NETWORK, MINE).attempt == attempt
    assert supervisor.fail(worker, MINE, error="reset", retryable=True).subject["status"] == "FAILED"


def test_a_worker_that_kept_tasks_of_its_own_ends_with_its_job(
    runtime: Runtime, supervisor: Supervisor, jobs: Jobs, dba: Dba
) -> None:
    """JOB-5."""
    worker = new(supervisor)
    job = jobs.client.create(
        "job", "J-1", context={"depth": 0, "task_description": "a", "workers": [str(worker)]}, by="ann"
    )
    jobs.validate(job["id"], MINE)
    new(supervisor)
    assert len(jobs.allocate(job["id"], MINE).subject["workers"]) == 1
    dba.execute("UPDATE supervised_workers SET tasks = '{a}' WHERE id = %s", (worker,))
    assert jobs.succeed(job["id"], MINE).subject["status"] == "COMPLETED"
    assert supervisor.show(worker)["status"] == "TERMINATED"


@pytest.mark.parametrize(
    "context",
    [{}, {"task_description": ""}, {"task_description": "a", "workers": ["w-1", "w-2"]}],
    ids=["no description", "an empty one", "more workers than it asks for"],
)
@pytest.mark.promise("O17")
def test_a_job_that_is_not_valid_is_not_accepted(client: Client, jobs: Jobs, context: dict[str, Any]) -> None:
    """JOB-13."""
    for name in ("w-1", "w-2"):
        client.create("supervised_worker", name, by="ann")
    job = client.create("job", "J-1", context={"depth": 0, **context}, by="ann")["id"]
    with pytest.raises(IllegalTransition, match="its context must say what is to be done"):
        jobs.validate(job, MINE)
    assert jobs.show(job)["status"] == "SUBMITTED"


def running(supervisor: Supervisor, jobs: Jobs, **said: Any) -> UUID:
    """A running job with one worker and a child that waits."""
    new(supervisor)
    job: UUID = jobs.submit("build", order=MINE, **said).subject["id"]
    jobs.validate(job, MINE)
    assert jobs.allocate(job, MINE).subject["status"] == "RUNNING"
    return job


@pytest.mark.promise("O17")
def test_a_job_that_runs_too_long_is_canceled_with_its_workers_and_children(
    runtime: Runtime, client: Client, supervisor: Supervisor, jobs: Jobs, dba: Dba
) -> None:
    """JOB-12."""
    job = running(supervisor, jobs, timeout_seconds=90.0)
    child = jobs.submit("a part", parent=job, order=MINE).subject["id"]
    due = dba.execute(
        "SELECT extract(epoch FROM not_before - accepted_at)::integer FROM trigger_requests"
        " WHERE trigger = 'timeout_exceeded'"
    ).fetchall()
    assert due == [(90,)]
    assert make_due(dba, "timeout_exceeded") == 1
    dba.execute("UPDATE trigger_requests SET status = 'pending' WHERE trigger = 'timeout_exceeded'")
    drain_all(runtime)
    found = jobs.show(job)
    assert (found["status"], [each["status"] for each in found["workers"]]) == ("CANCELED", ["TERMINATED"])
    assert jobs.show(child)["status"] == "CANCELED"
    assert trail(client, job)[-1] == "timeout_exceeded"


def test_a_job_that_ended_in_time_is_left_alone(
    runtime: Runtime, make_runtime: Callable[..., Runtime], jobs: Jobs, dba: Dba
) -> None:
    client = Client(make_runtime(job_timeout_seconds=120.0))
    job = running(Supervisor(client), Jobs(client))
    assert client.show(job)["context"]["timeout_sec"] == 120.0
    jobs.succeed(job, MINE)
    make_due(dba, "timeout_exceeded")
    dba.execute("UPDATE trigger_requests SET status = 'pending' WHERE trigger = 'timeout_exceeded'")
    drain_all(runtime)
    assert jobs.show(job)["status"] == "COMPLETED"


def silence(dba: Dba, worker: UUID, seconds: float = MISSED) -> None:
    crewing.silence(dba, worker, seconds, "supervised_workers")


@pytest.mark.promise("O17")
def test_a_running_worker_that_misses_two_heartbeats_fails(
    client: Client, supervisor: Supervisor, dba: Dba, sweep: Callable[[], int | None]
) -> None:
    """SUPERVISED-9."""
    worker = new(supervisor)
    supervisor.start(worker, MINE)
    silence(dba, worker, MISSED - 2)
    assert sweep() == 0
    silence(dba, worker)
    assert sweep() == 1
    assert sweep() == 0
    last = client.history(worker)[-1]
    assert (last["trigger"], last["to_state"], last["triggered_by"]) == ("error_unrecoverable", "FAILED", "heartbeats")
    assert last["metadata"]["reason"] == f"worker {supervisor.show(worker)['entity_id']} fell silent"


def test_one_that_is_heard_of_or_moved_goes_on(
    supervisor: Supervisor, dba: Dba, sweep: Callable[[], int | None]
) -> None:
    made = supervisor.create(order=MINE)
    worker = made.subject["id"]
    supervisor.start(worker, MINE)
    silence(dba, worker)
    assert supervisor.heartbeat(worker, secret=made.secret or "")["status"] == "RUNNING"
    assert sweep() == 0
    silence(dba, worker)
    supervisor.pause(worker, MINE)
    silence(dba, worker)
    assert sweep() == 0  # paused, it owes none
    supervisor.resume(worker, MINE)
    assert sweep() == 0
    supervisor.terminate(worker, MINE)
    with pytest.raises(IllegalTransition, match="is TERMINATED: stop its work"):
        supervisor.heartbeat(worker, secret=made.secret or "")


def test_nobody_else_sends_its_heartbeats_and_who_cannot_owes_none(
    client: Client, supervisor: Supervisor, dba: Dba, sweep: Callable[[], int | None]
) -> None:
    worker = new(supervisor)
    supervisor.start(worker, MINE)
    with pytest.raises(NotYours):
        supervisor.heartbeat(worker, secret="x" * 43)
    bare = client.create("supervised_worker", "w-bare", by="ann")["id"]
    supervisor.start(bare, MINE)
    silence(dba, bare)
    assert sweep() == 0
    assert supervisor.show(bare)["status"] == "RUNNING"


def test_a_worker_in_the_place_of_a_crashed_one_speaks_for_itself_and_owes_heartbeats(
    client: Client, supervisor: Supervisor, jobs: Jobs, dba: Dba, sweep: Callable[[], int | None]
) -> None:
    """SUPERVISED-7, SUPERVISED-9."""
    job = running(supervisor, jobs)
    (lost,) = jobs.show(job)["workers"]
    crash = (client, job, JobError.WORKER_CRASH, ActionOrder("ann", "signal 9"))
    done, again = (recover_job(*crash, worker=lost["id"]) for _ in range(2))
    assert done.replacement
    assert again.replacement
    assert (again.secret, again.replacement["id"]) == (None, done.replacement["id"]), "it is told once"
    new_one = done.replacement["id"]
    silence(dba, new_one)
    supervisor.heartbeat(new_one, secret=done.secret or "")
    assert sweep() == 0
    supervisor.complete(new_one, ActionOrder(done.replacement["entity_id"], secret=done.secret or ""))
    assert supervisor.show(new_one)["status"] == "COMPLETED"


def test_a_job_runs_until_its_own_time_limit_before_it_is_stuck(
    runtime: Runtime, supervisor: Supervisor, jobs: Jobs, dba: Dba
) -> None:
    """RECOVER-3."""
    job = running(supervisor, jobs, timeout_seconds=10 * DAY)
    age(dba, job, 9 * DAY)
    assert look(runtime, type_="job") == []
    age(dba, job, 10 * DAY + 1)
    assert found(runtime, job).reason.startswith("it waits for supervised_worker w_")
    (only,) = jobs.show(job)["workers"]
    supervisor.complete(only["id"], MINE)
    told = found(runtime, job)
    assert re.match("all its workers have ended, and nobody .* it is canceled at ", told.reason)
    assert "RUNNING" in paste(runtime, told.command).out


def test_a_job_that_nobody_validates_leads_on(runtime: Runtime, client: Client, jobs: Jobs) -> None:
    """RECOVER-18."""
    job = jobs.submit("build", order=MINE).subject["id"]
    paste(runtime, found(runtime, job, everything=True).command)
    assert jobs.show(job)["status"] == "PENDING"
    invalid = client.create("job", "j_x", by="ann", context={"depth": 0})["id"]
    with pytest.raises(IllegalTransition):
        jobs.validate(invalid, MINE)
    told = found(runtime, invalid, everything=True)
    assert told.reason.startswith("it cannot be validated: its context must say what is to be done")
    paste(runtime, told.command)
    assert jobs.show(invalid)["status"] == "CANCELED"


def test_a_job_is_done_again_once_it_has_ended(client: Client, jobs: Jobs) -> None:
    """JOB-9."""
    job = jobs.submit("build", order=MINE).subject["id"]
    with pytest.raises(BadInput, match="is SUBMITTED: only one that has ended is done again"):
        jobs.submit("build", retry_of=job, order=MINE)
    jobs.cancel(job, ActionOrder("ann", "the disk is full"))
    again = jobs.submit("build", retry_of=job, order=MINE).subject["id"]
    assert client.show(again)["context"]["retry_of"] == str(job)


def test_a_job_submitted_again_after_its_settings_changed_is_the_same_job(make_runtime: Callable[..., Runtime]) -> None:
    order = ActionOrder("ann", request_id="submit-1")
    first, again = (
        Jobs(Client(make_runtime(job_timeout_seconds=seconds))).submit("build", order=order)
        for seconds in (60.0, 120.0)
    )
    assert (again.subject["id"], again.replayed) == (first.subject["id"], True)
    client = Client(make_runtime(job_timeout_seconds=120.0))
    assert client.show(first.subject["id"])["context"]["timeout_sec"] == 60.0
    with pytest.raises(RequestConflict):
        Jobs(client).submit("build", timeout_seconds=120.0, order=order)
