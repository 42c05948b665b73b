"""Supervised jobs under limits: they hold a place from their start to their end (LIMIT-3, LIMIT-4)."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from interlock.db.connection import transaction
from interlock.db.core import limits
from interlock.db.orchestration import jobs as rows
from interlock.workers.client.client import Client
from interlock.workers.operations import metrics
from interlock.workers.overrides.limits import LimitedName, remove_limit, set_limit
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.runtime import Runtime
from interlock.workers.supervision.actions import ActionOrder
from interlock.workers.supervision.jobs import Jobs
from interlock.workers.supervision.supervised_workers import Supervisor
from tests.driving import drain_all, swept
from tests.rights import grant
from tests.stuck import found

pytestmark = pytest.mark.integration
MINE = ActionOrder("ann", "why")
WHY = OverrideOrder("olga", "one license")
JOB = LimitedName("type", "job")


@pytest.fixture
def jobs(client: Client) -> Jobs:
    """Of a project with six idle workers; olga is an operator."""
    grant(client, "olga")
    for _ in range(6):
        Supervisor(client).create(order=MINE)
    return Jobs(client)


def pending(jobs: Jobs, **terms: Any) -> UUID:
    made: UUID = jobs.submit("build", order=MINE, **terms).subject["id"]
    jobs.validate(made, MINE)
    return made


def use(runtime: Runtime) -> tuple[int, int, int]:
    """(held, started, waiting) of the only limit."""
    with transaction(runtime.database) as connection:
        (limit,) = limits.listed(connection)
        (used,) = limits.uses(connection, [limit["limit_id"]])
    return used["held"], used["started"], used["waiting"]


@pytest.mark.parametrize(
    "counted", [JOB, LimitedName("tool", "builder"), LimitedName("project"), LimitedName("tool", "b*")], ids=str
)
def test_a_job_without_room_waits_without_workers_and_starts_once_there_is(
    runtime: Runtime, jobs: Jobs, counted: LimitedName
) -> None:
    set_limit(runtime, counted, WHY, at_once_most=1)
    first, second = pending(jobs, tool="builder"), pending(jobs, tool="builder", worker_count=2)
    assert jobs.allocate(first, MINE).subject["status"] == "RUNNING"
    waits = jobs.allocate(second, MINE)
    assert (waits.subject["status"], waits.subject["idle"], waits.request_id) == ("PENDING", 0, None)
    assert waits.response["message"].startswith(f"the limit on {counted.kind}")
    with transaction(runtime.database) as connection:
        assert rows.servable(connection, limit=10) == [], "what has no room stands in nobody's way"
        (limit,) = limits.listed(connection)
        name = "builder" if counted.kind == "tool" else limit["name"]
        (holder,) = limits.holders(connection, limit["limit_id"], name)
    assert (holder["workflow_id"], holder["holder"], use(runtime)) == (first, "ann", (1, 0, 1))
    labels = (limit["project"], limit["kind"], limit["name"])
    values = {
        status: metrics.read(runtime)[metrics.LIMITS, (*labels, status)] for status in ("held", "room", "waiting")
    }
    assert values == {"held": 1, "room": 0, "waiting": 1}
    assert "limit" in found(runtime, second, everything=True).reason
    jobs.succeed(first, MINE)
    swept(runtime, "jobs")
    drain_all(runtime)
    assert jobs.show(second)["status"] == "RUNNING"
    assert use(runtime) == (1, 0, 0)


def test_the_series_of_limits_are_bounded(runtime: Runtime, jobs: Jobs) -> None:
    for each in range(metrics.MOST_LIMITS + 2):
        set_limit(runtime, LimitedName("key", f"k{each:03}"), WHY, at_once_most=each + 1, starts=7, per_seconds=60)
    series = {labels: value for (name, labels), value in metrics.read(runtime).items() if name == metrics.LIMITS}
    assert len(series) == 4 * metrics.MOST_LIMITS
    assert [series[jobs.client.project, "key", f"k{each:03}", "room"] for each in (0, 49)] == [1, 7]


def test_starts_are_counted_once_and_what_is_not_counted_goes_by(runtime: Runtime, jobs: Jobs) -> None:
    set_limit(runtime, LimitedName("tool", "builder"), WHY, starts=2, per_seconds=3600)
    for _ in range(2):
        job = pending(jobs, tool="builder")
        assert jobs.allocate(job, MINE).subject["status"] == "RUNNING"
        jobs.cancel(job, MINE)
    late, other = pending(jobs, tool="builder"), pending(jobs)
    assert jobs.allocate(late, MINE).subject["status"] == "PENDING"
    assert jobs.allocate(other, MINE).subject["status"] == "RUNNING"
    assert use(runtime) == (0, 2, 1)
    remove_limit(runtime, LimitedName("tool", "builder"), WHY)
    assert jobs.allocate(late, MINE).subject["status"] == "RUNNING"


def test_who_is_killed_before_the_commit_holds_no_place_and_who_asked_holds_one(runtime: Runtime, jobs: Jobs) -> None:
    set_limit(runtime, JOB, WHY, at_once_most=1)
    killed, next_ = pending(jobs), pending(jobs)
    with runtime.database.connect() as connection:
        assert rows.reserve(connection, killed)  # and whoever did that is killed
    swept(runtime, "jobs")
    assert use(runtime) == (1, 0, 1), "the start is accepted, and not applied yet"
    assert jobs.allocate(next_, MINE).subject["status"] == "PENDING"
    drain_all(runtime)
    assert (jobs.show(killed)["status"], use(runtime)) == ("RUNNING", (1, 0, 1))


def test_never_more_run_than_the_limit_says_however_many_ask_at_once(runtime: Runtime, jobs: Jobs) -> None:
    set_limit(runtime, JOB, WHY, at_once_most=2)
    asked = [pending(jobs) for _ in range(5)]
    with ThreadPoolExecutor(5) as pool:
        told = [each.subject["status"] for each in pool.map(lambda job: jobs.allocate(job, MINE), asked)]
    assert sorted(told) == ["PENDING"] * 3 + ["RUNNING"] * 2
    assert use(runtime) == (2, 0, 3)
