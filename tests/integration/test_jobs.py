"""Jobs: they run with all the workers they ask for or with none, and take these with them when they end."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.errors import CheckViolation, RestrictViolation
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.orchestration import jobs as supervision
from interlock.workers.client.client import Client
from interlock.workers.settings import Settings
from interlock.workers.supervision.actions import ActionOrder
from interlock.workers.supervision.jobs import Jobs
from interlock.workers.supervision.recovery import JobError, WorkerError, recover_job, recover_worker
from interlock.workers.supervision.supervised_workers import Supervisor
from interlock.workflows.errors import BadInput, NotYours, RequestConflict, UnknownInstance
from tests.callers import FORKS
from tests.driving import drain_all, swept
from tests.paths import moves
from tests.rights import fire, grant
from tests.supervising import act, allocated, leads

pytestmark = pytest.mark.integration

# docs/spec/supervision.md, written down again here.
WAY_TO = {
    "SUBMITTED": (),
    "PENDING": ("validate",),
    "RUNNING": ("validate", "allocate"),
    "COMPLETED": ("validate", "allocate", "succeed"),
    "FAILED": ("validate", "allocate", "fail"),
    "CANCELED": ("cancel",),
}
LEADS = moves(
    "SUBMITTED validate PENDING allocate RUNNING succeed COMPLETED",
    "RUNNING fail FAILED",
    *(f"{state} cancel CANCELED" for state in ("SUBMITTED", "PENDING", "RUNNING")),
)
ORDER = ActionOrder("ann", "why")
ACTIONS = ("validate", "allocate", "succeed", "fail", "cancel")


@pytest.fixture
def jobs(client: Client) -> Jobs:
    grant(client, "ann")
    return Jobs(client)


@pytest.fixture
def supervisor(client: Client) -> Supervisor:
    grant(client, "ann")
    return Supervisor(client)


def idle(supervisor: Supervisor, project: str, count: int) -> list[UUID]:
    return [supervisor.create(project=project).subject["id"] for _ in range(count)]


def pending(jobs: Jobs, project: str, worker_count: int = 1) -> UUID:
    made: UUID = jobs.submit("build", project=project, worker_count=worker_count).subject["id"]
    jobs.validate(made)
    return made


def job_in(jobs: Jobs, supervisor: Supervisor, project: str, state: str) -> UUID:
    idle(supervisor, project, 2)
    made: UUID = jobs.submit("build", project=project, worker_count=2).subject["id"]
    for action in WAY_TO[state]:
        act(jobs, action, made)
    return made


def statuses(found: list[Any]) -> list[str]:
    return sorted(each["status"] for each in found)


@pytest.mark.parametrize(("state", "action"), list(product(WAY_TO, ACTIONS)))
def test_every_action_in_every_state(jobs: Jobs, supervisor: Supervisor, project: str, state: str, action: str) -> None:
    job = job_in(jobs, supervisor, project, state)
    leads(jobs, action, job, state, LEADS.get((state, action)))


@pytest.mark.parametrize(
    ("action", "became"), [("succeed", "COMPLETED"), ("fail", "TERMINATED"), ("cancel", "TERMINATED")]
)
def test_a_jobs_workers_start_with_it_and_end_with_it(
    jobs: Jobs, supervisor: Supervisor, project: str, action: str, became: str
) -> None:
    job = pending(jobs, project, 3)
    idle(supervisor, project, 4)
    assert statuses(jobs.allocate(job).subject["workers"]) == ["RUNNING"] * 3
    ended = act(jobs, action, job).subject
    assert statuses(ended["workers"]) == [became] * 3
    assert ended["started_at"] <= ended["completed_at"]
    assert len(supervisor.newest(status="IDLE")) == 1


def test_a_paused_worker_of_a_completed_job_is_released_by_force(
    jobs: Jobs, supervisor: Supervisor, project: str
) -> None:
    job = job_in(jobs, supervisor, project, "RUNNING")
    supervisor.pause(jobs.show(job)["workers"][0]["id"], ORDER)
    assert statuses(jobs.succeed(job, result={"tests": 12}).subject["workers"]) == ["COMPLETED", "TERMINATED"]
    assert jobs.client.history(job)[-1]["metadata"]["result"] == {"tests": 12}


def test_a_job_without_enough_idle_workers_waits_holding_none_until_the_sweep_finds_them(
    jobs: Jobs, supervisor: Supervisor, project: str, dba: "psycopg.Connection[Any]"
) -> None:
    job = pending(jobs, project, 3)
    idle(supervisor, project, 2)
    idle(supervisor, uuid7(), 5)  # another project's are not its own
    answer = jobs.allocate(job, ActionOrder("ann", request_id="allocate-1"))
    assert answer.subject["status"] == "PENDING"
    assert "3 needed" in answer.response["message"]
    assert jobs.show(job)["workers"] == []
    assert sweep(jobs, dba) == 0
    idle(supervisor, project, 1)
    assert sweep(jobs, dba) == 1
    assert statuses(jobs.show(job)["workers"]) == ["RUNNING"] * 3
    assert jobs.show(job)["status"] == "RUNNING"
    assert sweep(jobs, dba) == 0


def test_the_sweep_ends_what_a_dead_supervisor_left_paused(
    jobs: Jobs, supervisor: Supervisor, project: str, dba: "psycopg.Connection[Any]"
) -> None:
    job = job_in(jobs, supervisor, project, "RUNNING")
    paused = jobs.show(job)["workers"][0]["id"]
    supervisor.pause(paused, ORDER)
    fire(jobs.client, job, "success", by="agent")
    drain_all(jobs.client.runtime)
    assert supervisor.show(paused)["status"] == "PAUSED"
    assert sweep(jobs, dba) == 1
    assert supervisor.show(paused)["status"] == "TERMINATED"


def sweep(jobs: Jobs, dba: "psycopg.Connection[Any]") -> int | None:
    dba.execute("DELETE FROM sweeps")
    found = swept(jobs.client.runtime, "jobs")
    drain_all(jobs.client.runtime)
    return found


def test_a_trigger_fired_past_the_allocation_is_refused_by_the_machine(jobs: Jobs, project: str) -> None:
    job = pending(jobs, project)
    receipt = fire(jobs.client, job, "allocate_resources", by="agent")
    drain_all(jobs.client.runtime)
    (settled,) = jobs.client.wait([receipt.request_id])
    assert settled.status == "rejected"
    assert (settled.result or {})["missing"] == ["workers_allocated"]


def test_an_interrupted_allocation_goes_on_with_what_it_holds(
    jobs: Jobs, supervisor: Supervisor, project: str, dba: "psycopg.Connection[Any]"
) -> None:
    job = pending(jobs, project, 2)
    idle(supervisor, project, 2)
    with transaction(jobs.client.runtime.database) as connection:
        assert supervision.reserve(connection, job)  # and whoever did that is killed
    other = pending(jobs, project, 1)
    assert jobs.allocate(other).subject["status"] == "PENDING"  # nobody else gets them
    assert sweep(jobs, dba) == 1
    assert jobs.show(job)["status"] == "RUNNING"


def test_a_canceled_jobs_reserved_workers_are_free_again(jobs: Jobs, supervisor: Supervisor, project: str) -> None:
    job, other = pending(jobs, project, 1), pending(jobs, project, 1)
    idle(supervisor, project, 1)
    with transaction(jobs.client.runtime.database) as connection:
        assert supervision.reserve(connection, job)
    jobs.cancel(job, ORDER)
    assert jobs.allocate(other).subject["status"] == "RUNNING"


def test_jobs_that_want_the_same_workers_at_once_never_share_one(
    jobs: Jobs, supervisor: Supervisor, project: str, settings: Settings
) -> None:
    wanting = [pending(jobs, project, 3) for _ in range(6)]
    idle(supervisor, project, 10)
    with ProcessPoolExecutor(4, mp_context=FORKS) as processes:
        asked = [processes.submit(allocated, settings, str(job)) for job in wanting]
        became = [each.result() for each in asked]
    assert sorted(became) == ["PENDING"] * 3 + ["RUNNING"] * 3
    held = [worker["id"] for job in wanting for worker in jobs.show(job)["workers"]]
    assert len(held) == len(set(held)) == 9


def test_a_repeated_request_gives_the_recorded_answer(jobs: Jobs, supervisor: Supervisor, project: str) -> None:
    job = pending(jobs, project)
    idle(supervisor, project, 2)
    first = act(jobs, "allocate", job, request_id="al-1")
    again = act(jobs, "allocate", job, request_id="al-1")
    assert (again.response, again.replayed) == (first.response, True)
    assert len(supervisor.newest(status="IDLE")) == 1
    with pytest.raises(RequestConflict):
        act(jobs, "cancel", job, request_id="al-1")


def test_a_repeated_submission_makes_one_job(jobs: Jobs, project: str) -> None:
    order = ActionOrder("ann", request_id="submit-1")
    first, again = (jobs.submit("build", project=project, order=order) for _ in range(2))
    assert (first.subject["id"], again.replayed) == (again.subject["id"], True)
    with pytest.raises(RequestConflict):
        jobs.submit("build something else", project=project, order=order)


def test_a_child_is_one_deeper_than_its_parent_and_five_is_deepest(jobs: Jobs, project: str) -> None:
    job = jobs.submit("root", project=project).subject
    line = [job]
    for depth in range(1, 6):
        line.append(jobs.submit(f"level {depth}", parent=line[-1]["id"]).subject)
        assert (line[-1]["depth"], line[-1]["parent_job_id"]) == (depth, line[-2]["id"])
    with pytest.raises(BadInput, match="at most 5 deep"):
        jobs.submit("level 6", parent=line[-1]["id"])
    with pytest.raises(BadInput, match="depth must be 1"):
        jobs.submit("a leap", parent=job["id"], depth=3)
    with pytest.raises(UnknownInstance):
        jobs.submit("an orphan", parent=uuid7())
    assert [each["depth"] for each in jobs.tree(job["id"])] == list(range(6))


@pytest.mark.parametrize(
    "wrong", [{"worker_count": 0}, {"worker_count": 11}, {"depth": -1}, {"depth": 6}, {"description": ""}]
)
def test_python_refuses_what_is_out_of_bounds(jobs: Jobs, project: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        jobs.submit(**({"description": "build", "project": project} | wrong))


@pytest.mark.parametrize(
    "context",
    ['{"depth": 0, "worker_count": 0}', '{"depth": 0, "worker_count": 11}', '{"depth": -1}', '{"depth": 6}'],
)
def test_postgresql_refuses_what_is_out_of_bounds(dba: "psycopg.Connection[Any]", context: str) -> None:
    with pytest.raises(CheckViolation):
        dba.execute(BIRTH, (context,))


def test_postgresql_refuses_a_child_at_another_depth(jobs: Jobs, project: str, dba: "psycopg.Connection[Any]") -> None:
    parent = jobs.submit("root", project=project).subject["id"]
    with pytest.raises(CheckViolation, match="has depth 1, not 2"):
        dba.execute(BIRTH, (f'{{"depth": 2, "parent_job_id": "{parent}"}}',))


BIRTH = (
    "INSERT INTO workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project,"
    " context, created_by) VALUES (gen_random_uuid(), 'job', '1.0.0', 'SUBMITTED', 'J', gen_random_uuid(), %s, 'dba')"
)


def test_canceling_a_job_cancels_all_below_it_and_nothing_beside_it(
    jobs: Jobs, supervisor: Supervisor, project: str
) -> None:
    root = jobs.submit("root", project=project).subject["id"]
    one, two = (jobs.submit(name, parent=root).subject["id"] for name in ("one", "two"))
    below = jobs.submit("below", parent=one).subject["id"]
    jobs.validate(below)
    idle(supervisor, project, 1)
    jobs.allocate(below)
    jobs.cancel(one, ORDER)
    found = {each["task_description"]: each["status"] for each in jobs.tree(root)}
    assert found == {"root": "SUBMITTED", "one": "CANCELED", "below": "CANCELED", "two": "SUBMITTED"}
    assert [each["task_description"] for each in jobs.tree(root)] == ["root", "one", "below", "two"]
    assert statuses(jobs.show(below)["workers"]) == ["TERMINATED"]
    assert jobs.show(two)["status"] == "SUBMITTED"


@pytest.mark.parametrize("state", ["SUBMITTED", "PENDING", "RUNNING"])
def test_a_canceled_job_takes_its_children_with_it_wherever_it_stood(
    jobs: Jobs, supervisor: Supervisor, project: str, state: str
) -> None:
    job = job_in(jobs, supervisor, project, state)
    child = jobs.submit("a part", parent=job).subject["id"]
    jobs.cancel(job, ORDER)
    assert jobs.show(child)["status"] == "CANCELED"


def test_a_job_is_canceled_with_a_reason_and_what_follows_names_who_and_the_event_with_why(
    jobs: Jobs, project: str
) -> None:
    job = pending(jobs, project)
    child = jobs.submit("a part", parent=job).subject["id"]
    with pytest.raises(BadInput, match="say why"):
        jobs.cancel(job, ActionOrder("ann"))
    event = jobs.client.history(jobs.cancel(job, ORDER).subject["id"])[-1]
    assert (event["triggered_by"], event["metadata"]["reason"]) == ("ann", "why")
    (followed,) = jobs.client.history(child)
    assert (followed["triggered_by"], followed["metadata"]["caused_by"]) == ("ann", str(event["id"]))


def test_a_job_is_found_by_its_name_and_only_as_a_job(jobs: Jobs, supervisor: Supervisor, project: str) -> None:
    made = jobs.submit("build", project=project).subject
    assert made["entity_id"].startswith("j_")
    assert jobs.show(made["entity_id"])["id"] == jobs.show(f"job/{made['entity_id']}")["id"] == made["id"]
    with pytest.raises(UnknownInstance, match="is not a job but a supervised_worker"):
        jobs.cancel(supervisor.create(project=project).subject["id"], ORDER)


def test_a_job_and_its_workers_are_moved_by_their_supervisor_only(
    client: Client, jobs: Jobs, supervisor: Supervisor, project: str
) -> None:
    mine, others = ActionOrder("sue", "hers"), ActionOrder("mallory", "his")
    made = supervisor.create(project=project, order=ActionOrder("tom"))
    worker, job = made.subject, jobs.submit("build", project=project, order=mine).subject["id"]

    def refused(*actions: Callable[[UUID, ActionOrder], object]) -> None:
        before = client.show(job), client.show(worker["id"])
        for action in actions:
            with pytest.raises(NotYours, match="mallory may not fire"):
                action(job if isinstance(getattr(action, "__self__", None), Jobs) else worker["id"], others)
        assert (client.show(job), client.show(worker["id"])) == before

    refused(jobs.validate, jobs.allocate, jobs.succeed, jobs.fail)
    jobs.validate(job, mine)
    refused(jobs.allocate)
    assert jobs.allocate(job, mine).subject["status"] == "RUNNING"
    refused(jobs.succeed, jobs.fail, supervisor.complete, supervisor.fail)
    with pytest.raises(NotYours):
        recover_worker(client, worker["id"], WorkerError.TRANSIENT_NETWORK, others)
    for kind in (JobError.WORKER_CRASH, JobError.VALIDATION):
        with pytest.raises(NotYours):
            recover_job(client, job, kind, others, worker=worker["id"])
    supervisor.pause(worker["id"], others)  # open to anyone
    supervisor.resume(worker["id"], others)
    other = supervisor.create(project=project)
    supervisor.terminate(other.subject["id"], mine)
    for secret in ("", "x" * 43, other.secret or ""):  # none, a made-up one, another's
        with pytest.raises(NotYours, match="the worker itself, by the secret of its registration"):
            jobs.succeed(job, ActionOrder(worker["entity_id"], secret=secret))
        with pytest.raises(NotYours):
            supervisor.complete(worker["id"], ActionOrder(worker["entity_id"], secret=secret))
    jobs.succeed(job, ActionOrder(worker["entity_id"], secret=made.secret or ""))
    assert supervisor.show(worker["id"])["status"] == "COMPLETED"
    for who in (mine, ActionOrder("ann"), ActionOrder("tom")):  # its job's submitter, an operator, its own
        worker = supervisor.create(project=project, order=ActionOrder("tom")).subject
        jobs.validate(job := jobs.submit("build", project=project, order=mine).subject["id"], mine)
        jobs.allocate(job, mine)
        supervisor.fail(worker["id"], who)
        jobs.cancel(job, others)


def test_a_job_names_no_workers_of_others_as_its_own(
    client: Client, dba: "psycopg.Connection[Any]", jobs: Jobs, supervisor: Supervisor, project: str
) -> None:
    def named(worker: UUID, by: str, within: str = project) -> UUID:
        context = {"depth": 0, "workers": [str(worker)]}
        found: UUID = client.create("job", f"J-{uuid7()}", project=within, context=context, by=by)["id"]
        return found

    idle, running, busy = (supervisor.create(project=project, order=ActionOrder("sue")).subject["id"] for _ in range(3))
    for worker in (running, busy):
        supervisor.start(worker)
    named(busy, "sue")  # her own, which works already
    for worker, by, within, why in (
        (running, "mallory", project, "it is RUNNING, and sue created it"),
        (busy, "sue", project, "another job has it"),
        (idle, "mallory", "elsewhere", "it is of another project"),
    ):
        with pytest.raises(BadInput, match=why):
            named(worker, by, within)
    mine = named(idle, "mallory")  # as the pool would give it
    with pytest.raises(RestrictViolation, match="another job has it"):
        dba.execute(
            "INSERT INTO workflow_links (source_id, role, inverse, target_id) VALUES (%s, 'workers', 'job', %s)",
            (mine, busy),
        )
    jobs.cancel(mine, ActionOrder("mallory", "why"))
    assert named(idle, "sue")  # the other has ended
