"""Jobs: submit them, allocate their workers, end them (docs/spec/supervision.md)."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from interlock.api.access import Called, Caller
from interlock.api.acting import MOVED, Acting, created, order
from interlock.api.inside import inside
from interlock.api.models import Text
from interlock.api.paging import IN_STATE, Paging
from interlock.api.parameters import IdempotencyKey, Project
from interlock.api.problems import JsonAnswer, creating, documented
from interlock.api.routes.supervisor import worker_shown
from interlock.api.rows import only, page_model
from interlock.api.supervision_models import (
    ActionReason,
    ActionReport,
    JobDetail,
    JobStatus,
    JobSummary,
    JobTree,
    OwnReport,
    RecordedMove,
    RecoveredJob,
)
from interlock.db.orchestration import jobs as rows
from interlock.workers.client.client import Client
from interlock.workers.supervision.actions import ActionOrder, Answer
from interlock.workers.supervision.jobs import Jobs
from interlock.workers.supervision.recovery import JobError, recover_job
from interlock.workflows.machines.supervision.job import DEEPEST, MOST_WORKERS

router = APIRouter(tags=["jobs"])


class JobOrder(ActionReport):
    """A job to submit."""

    description: Text = Field(examples=["build the report"], description="what is to be done")
    project: Text | None = Field(None, description="whose idle workers it may get; default: the token's only project")
    parent: Text | None = Field(None, description="the job that it is a part of: its UUID or entity id")
    depth: Annotated[int, Field(strict=True, ge=0, le=DEEPEST)] | None = Field(
        None, description="with a parent: one more than the parent's, which is the default; without one, default: 0"
    )
    worker_count: Annotated[int, Field(strict=True, ge=1, le=MOST_WORKERS)] = Field(1, description="that it needs")
    timeout_seconds: Annotated[float, Field(gt=0)] | None = Field(None, description="that it may run; then it ends")
    retry_of: Text | None = Field(None, description="the ended job that it does again: its UUID or entity id")
    tool: Text | None = Field(None, description="the tool that it uses: limits on that tool count it")


class JobSuccess(OwnReport):
    """That a job succeeded."""

    result: dict[str, Any] | None = Field(None, description="kept in the event")


class JobFailure(OwnReport):
    """That a job failed."""

    error: Text | None = Field(None, description="what went wrong; kept in the event")


class JobFault(ActionReason):
    """An error to recover from."""

    kind: JobError
    worker: Text | None = Field(None, description="which of its workers crashed: its UUID or entity id")
    error: Text | None = Field(None, description="what went wrong; kept in the event")


@router.post("/jobs", **creating(RecordedMove, "It was submitted before"))
async def submit_job(caller: Called, wanted: JobOrder, key: IdempotencyKey = None) -> JsonAnswer:
    """Submit a job. Its name comes from the `request_id`, if there is one."""

    def made() -> Answer:
        client = caller.client(wanted.project, write=True)
        terms = ("depth", "worker_count", "timeout_seconds", "tool")
        given = {name: getattr(wanted, name) for name in terms}
        given |= {name: _id(caller, client.project, getattr(wanted, name)) for name in ("parent", "retry_of")}
        return Jobs(client).submit(wanted.description, order=order(caller, wanted, key), **given)

    return created(await inside(made))


def _id(caller: Caller, project: str, ref: str | None) -> UUID | None:
    """The id of another job that a body names. Raises `UnknownInstance` if there is none for this token."""
    if ref is None:
        return None
    with caller.located(ref, project) as (client, found):
        return UUID(str(Jobs(client).show(found)["id"]))


@router.get("/jobs", response_model=page_model(JobSummary), responses=documented())
async def list_jobs(paging: Paging, status: Annotated[JobStatus | None, IN_STATE] = None) -> JsonAnswer:
    """List jobs, newest first, of one project or of all that the token covers."""
    return await paging.page(rows.jobs_page, partial(only, JobSummary), status=status)


@router.get("/jobs/{ref}", response_model=JobDetail, responses=documented(409, 410))
async def show_job(caller: Called, ref: Text, project: Project = None) -> JsonAnswer:
    """Show a job and its workers. REF is its UUID, or its entity id in the project."""

    def read() -> dict[str, Any]:
        with caller.located(ref, project) as (client, found):
            return _detail(Jobs(client).show(found))

    return JsonAnswer(await inside(read))


@router.get("/jobs/{ref}/tree", response_model=JobTree, responses=documented(409, 410))
async def show_job_tree(caller: Called, ref: Text, project: Project = None) -> JsonAnswer:
    """Show a job and all its descendants, parents before their children."""

    def read() -> list[dict[str, Any]]:
        with caller.located(ref, project) as (client, found):
            return [only(JobSummary, each) for each in Jobs(client).tree(found)]

    return JsonAnswer({"items": await inside(read)})


@router.post("/jobs/{ref}/validate", response_model=RecordedMove, responses=MOVED)
async def validate_job(acting: Acting, said: ActionReport) -> JsonAnswer:
    """Accept a submitted job: from now on it waits for its workers."""
    return await acting.move(said, Jobs, Jobs.validate)


@router.post("/jobs/{ref}/allocate", response_model=RecordedMove, responses=MOVED)
async def allocate_job(acting: Acting, said: ActionReport) -> JsonAnswer:
    """Allocate a job's workers, which start with it. Too few, or a full limit: it stays PENDING, and is tried again."""
    return await acting.move(said, Jobs, Jobs.allocate)


@router.post("/jobs/{ref}/succeed", response_model=RecordedMove, responses=MOVED)
async def succeed_job(acting: Acting, said: JobSuccess) -> JsonAnswer:
    """Report that a running job succeeded: its supervisor, or one of its workers, by its secret."""
    return await acting.move(said, Jobs, Jobs.succeed, result=said.result)


@router.post("/jobs/{ref}/fail", response_model=RecordedMove, responses=MOVED)
async def fail_job(acting: Acting, said: JobFailure) -> JsonAnswer:
    """Report that a running job failed: its supervisor, or one of its workers, by its secret."""
    return await acting.move(said, Jobs, Jobs.fail, error=said.error)


@router.post("/supervisor/jobs/{ref}/cancel", response_model=RecordedMove, responses=MOVED)
async def cancel_job(acting: Acting, why: ActionReason) -> JsonAnswer:
    """Cancel a job and its child jobs; its workers are terminated."""
    return await acting.move(why, Jobs, Jobs.cancel)


@router.post("/supervisor/jobs/{ref}/recover", response_model=RecoveredJob, responses=MOVED)
async def recover_from_job_error(acting: Acting, fault: JobFault) -> JsonAnswer:
    """Handle a job's error: replace a crashed worker, fail, cancel or wait, by its kind (JOB-7)."""

    def recover(client: Client, ref: str | UUID, order: ActionOrder) -> dict[str, Any]:
        done = recover_job(client, ref, fault.kind, order, error=fault.error, worker=fault.worker)
        replacement = worker_shown(done.replacement) if done.replacement else None
        own = {"job": _detail(done.subject), "replacement": replacement, "secret": done.secret}
        return {"action": done.action} | own

    return await acting.do(fault, recover)


def _detail(row: Mapping[str, Any]) -> dict[str, Any]:
    workers = [worker_shown(each) for each in row["workers"]]
    return only(JobDetail, {**row, "workers": workers})
