"""The recovery tables, row by row (SUPERVISED-5, JOB-7)."""

from uuid import UUID

import pytest

from interlock.workers.client.client import Client
from interlock.workers.supervision.actions import ActionOrder
from interlock.workers.supervision.jobs import Jobs
from interlock.workers.supervision.recovery import JobError, WorkerError, recover_job, recover_worker
from interlock.workers.supervision.supervised_workers import Supervisor
from interlock.workflows.errors import BadInput, IllegalTransition
from tests.rights import grant

pytestmark = pytest.mark.integration
ORDER = ActionOrder("ann", "why")


@pytest.fixture
def jobs(client: Client) -> Jobs:
    grant(client, "ann")
    return Jobs(client)


@pytest.fixture
def running(client: Client, project: str) -> UUID:
    """A running worker that holds something."""
    grant(client, "ann")
    grant(client, "bob")
    supervisor = Supervisor(client)
    made: UUID = supervisor.create(project=project).subject["id"]
    supervisor.start(made, resources=("gpu-1",))
    return made


@pytest.fixture
def job(client: Client, jobs: Jobs, project: str) -> UUID:
    """A pending job, and two idle workers that it could have."""
    for _ in range(2):
        Supervisor(client).create(project=project)
    made: UUID = jobs.submit("build", project=project, worker_count=2).subject["id"]
    jobs.validate(made)
    return made


def test_a_transient_network_error_is_retried_three_times_and_then_is_unrecoverable(
    client: Client, running: UUID
) -> None:
    done = [
        recover_worker(client, running, WorkerError.TRANSIENT_NETWORK, ORDER, error="reset by peer") for _ in range(4)
    ]
    assert [each.action for each in done] == ["retry", "retry", "retry", "fail"]
    assert [each.attempt for each in done] == [1, 2, 3, 0]
    assert [each.subject["status"] for each in done] == ["RUNNING"] * 3 + ["FAILED"]
    assert "reset by peer" in client.history(running)[-1]["metadata"]["error"]


def test_a_retry_which_is_no_move_is_kept_with_who_and_why(client: Client, running: UUID) -> None:
    recover_worker(client, running, WorkerError.TRANSIENT_NETWORK, ORDER)
    recover_worker(client, running, WorkerError.TRANSIENT_NETWORK, ActionOrder("bob", "the proxy restarts"))
    made = Supervisor(client).show(running)["metadata"]["retries"]["made"]
    told = [(each["attempt"], each["by"], each["reason"]) for each in made]
    assert told == [(1, "ann", "why"), (2, "bob", "the proxy restarts")]
    assert all(each["at"] for each in made)


@pytest.mark.parametrize("kind", WorkerError)
def test_a_recovery_must_say_why(client: Client, jobs: Jobs, job: UUID, running: UUID, kind: WorkerError) -> None:
    with pytest.raises(BadInput, match="say why"):
        recover_worker(client, running, kind, ActionOrder("ann"))
    with pytest.raises(BadInput, match="say why"):
        recover_job(client, job, JobError.TIMEOUT, ActionOrder("ann"))
    assert (Supervisor(client).show(running)["status"], jobs.show(job)["status"]) == ("RUNNING", "PENDING")


def test_retries_are_counted_since_the_workers_last_move(client: Client, running: UUID) -> None:
    supervisor = Supervisor(client)
    for _ in range(3):
        recover_worker(client, running, WorkerError.TRANSIENT_NETWORK, ORDER)
    supervisor.pause(running, ORDER)
    with pytest.raises(IllegalTransition) as refusal:
        recover_worker(client, running, WorkerError.TRANSIENT_NETWORK, ORDER)
    assert (refusal.value.state, refusal.value.legal) == ("PAUSED", ("resume", "terminate"))
    supervisor.resume(running, ORDER)
    assert recover_worker(client, running, WorkerError.TRANSIENT_NETWORK, ORDER).attempt == 1


def test_a_repeated_request_is_the_retry_it_was(client: Client, running: UUID) -> None:
    orders = [ActionOrder("ann", "why", name) for name in ("a", "b", "a", "c", "b")]
    done = [recover_worker(client, running, WorkerError.TRANSIENT_NETWORK, order) for order in orders]
    assert [each.attempt for each in done] == [1, 2, 1, 3, 2]


def test_a_repeated_request_is_answered_alike_when_the_worker_has_moved_on(client: Client, running: UUID) -> None:
    def told(name: str) -> tuple[str, int]:
        done = recover_worker(
            client, running, WorkerError.TRANSIENT_NETWORK, ActionOrder("ann", "why", name), error="reset"
        )
        return done.action, done.attempt

    first = [told("a")]
    Supervisor(client).pause(running, ORDER)
    assert told("a") == first[0]
    Supervisor(client).resume(running, ORDER)
    first += [told(name) for name in ("b", "c", "d", "e")]
    assert first == [("retry", 1), ("retry", 1), ("retry", 2), ("retry", 3), ("fail", 0)]
    events = len(client.history(running))
    assert [told(name) for name in "abcde"] == first
    assert len(client.history(running)) == events


def test_resource_exhaustion_pauses_the_worker_and_gives_back_what_it_holds(client: Client, running: UUID) -> None:
    assert Supervisor(client).show(running)["resources"] == ["gpu-1"]
    done = recover_worker(client, running, WorkerError.RESOURCE_EXHAUSTION, ORDER, error="out of memory")
    assert (done.action, done.subject["status"], done.subject["resources"]) == ("pause", "PAUSED", [])
    assert client.history(running)[-1]["metadata"]["error"] == "out of memory"


def test_an_unrecoverable_error_fails_the_worker_and_is_kept(client: Client, running: UUID) -> None:
    done = recover_worker(client, running, WorkerError.UNRECOVERABLE, ORDER, error="corrupt")
    assert (done.action, done.subject["status"], done.subject["resources"]) == ("fail", "FAILED", [])
    event = client.history(running)[-1]
    assert (event["severity"], event["metadata"]["error"]) == ("error", "corrupt")


def test_a_supervisor_timeout_terminates_the_worker(client: Client, running: UUID) -> None:
    assert recover_worker(client, running, WorkerError.SUPERVISOR_TIMEOUT, ORDER).subject["status"] == "TERMINATED"
    with pytest.raises(IllegalTransition):
        recover_worker(client, running, WorkerError.SUPERVISOR_TIMEOUT, ORDER)


@pytest.mark.parametrize("way", [(), ("pause",), ("terminate",)])
def test_a_crashed_worker_is_replaced_and_its_job_runs_on(
    client: Client, jobs: Jobs, job: UUID, way: tuple[str, ...]
) -> None:
    lost, kept = jobs.allocate(job).subject["workers"]
    for action in way:
        getattr(Supervisor(client), action)(lost["id"], ORDER)
    done = [
        recover_job(client, job, JobError.WORKER_CRASH, ORDER, worker=lost["id"], error="signal 9") for _ in range(2)
    ]
    assert all(each.action == "respawn" and each.subject["status"] == "RUNNING" for each in done)
    first, again = (each.replacement for each in done)
    assert first is not None
    assert again is not None
    assert first["id"] == again["id"] != lost["id"]  # the same crash told twice takes one replacement
    assert client.show(first["id"])["context"]["reason"] == "why"
    assert client.show(first["id"])["context"]["in_place_of"] == lost["entity_id"]
    found = {each["id"]: each["status"] for each in jobs.show(job)["workers"]}
    ended = "FAILED" if not way else "TERMINATED"
    assert found == {lost["id"]: ended, kept["id"]: "RUNNING", first["id"]: "RUNNING"}
    assert statuses_after_success(jobs, job) == sorted(["COMPLETED", "COMPLETED", ended])


def statuses_after_success(jobs: Jobs, job: UUID) -> list[str]:
    return sorted(each["status"] for each in jobs.succeed(job).subject["workers"])


def test_a_replacement_that_crashes_is_replaced_too(client: Client, jobs: Jobs, job: UUID) -> None:
    lost = jobs.allocate(job).subject["workers"][0]["id"]
    for _ in range(3):
        done = recover_job(client, job, JobError.WORKER_CRASH, ORDER, worker=lost)
        assert done.replacement is not None
        lost = done.replacement["id"]
    assert sorted(each["status"] for each in done.subject["workers"]) == ["FAILED"] * 3 + ["RUNNING"] * 2


def test_a_crash_of_somebody_elses_worker_or_of_a_job_that_does_not_run_is_refused(
    client: Client, jobs: Jobs, job: UUID, running: UUID
) -> None:
    with pytest.raises(IllegalTransition):
        recover_job(client, job, JobError.WORKER_CRASH, ORDER, worker=running)
    jobs.allocate(job)
    for worker in (running, None):
        with pytest.raises(BadInput, match="name the one of its own that crashed"):
            recover_job(client, job, JobError.WORKER_CRASH, ORDER, worker=worker)


invalid_at = pytest.mark.parametrize(  # how far the job had come, and how it ends
    ("way", "became"), [((), "CANCELED"), (("validate",), "CANCELED"), (("validate", "allocate"), "FAILED")]
)


def malformed(jobs: Jobs, project: str, way: tuple[str, ...]) -> UUID:
    made: UUID = jobs.submit("malformed", project=project).subject["id"]
    for action in way:
        getattr(jobs, action)(made)
    return made


@invalid_at
def test_a_validation_error_ends_the_job_at_once(
    client: Client, jobs: Jobs, job: UUID, project: str, way: tuple[str, ...], became: str
) -> None:
    made = malformed(jobs, project, way)
    done = recover_job(client, made, JobError.VALIDATION, ORDER, error="no such branch")
    assert done.subject["status"] == became
    assert client.history(made)[-1]["metadata"]["error"] == "no such branch"


@invalid_at
def test_a_validation_error_told_again_is_answered_alike(
    client: Client, jobs: Jobs, job: UUID, project: str, way: tuple[str, ...], became: str
) -> None:
    made = malformed(jobs, project, way)
    order = ActionOrder("ann", "why", "bad")
    done = [recover_job(client, made, JobError.VALIDATION, order, error="no such branch") for _ in range(2)]
    assert done[0] == done[1]
    assert done[0].subject["status"] == became


def test_a_crash_told_again_after_the_job_has_ended_is_answered_alike(client: Client, jobs: Jobs, job: UUID) -> None:
    lost = jobs.allocate(job).subject["workers"][0]["id"]
    order = ActionOrder("ann", "why", "crash-1")
    first = recover_job(client, job, JobError.WORKER_CRASH, order, worker=lost)
    jobs.succeed(job)
    again = recover_job(client, job, JobError.WORKER_CRASH, order, worker=lost)
    assert first.replacement is not None
    assert again.replacement is not None
    assert (again.action, again.replacement["id"]) == ("respawn", first.replacement["id"])
    assert again.subject["status"] == "COMPLETED"


def test_a_timeout_cancels_the_job_and_its_workers(client: Client, jobs: Jobs, job: UUID) -> None:
    jobs.allocate(job)
    done = recover_job(client, job, JobError.TIMEOUT, ORDER)
    assert done.subject["status"] == "CANCELED"
    assert {each["status"] for each in done.subject["workers"]} == {"TERMINATED"}


def test_a_job_whose_resources_are_unavailable_stays_pending(client: Client, jobs: Jobs, job: UUID) -> None:
    done = recover_job(client, job, JobError.RESOURCE_UNAVAILABLE, ORDER)
    assert (done.action, done.subject["status"]) == ("wait", "PENDING")
    jobs.allocate(job)
    with pytest.raises(IllegalTransition):
        recover_job(client, job, JobError.RESOURCE_UNAVAILABLE, ORDER)
