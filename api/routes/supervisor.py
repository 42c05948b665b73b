"""Supervised workers: create, start, pause, resume and end them (docs/spec/supervision.md)."""

from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from interlock.api.access import Called
from interlock.api.acting import MOVED, Acting, created, order
from interlock.api.inside import inside
from interlock.api.models import Taken, Text
from interlock.api.paging import IN_STATE, Paging
from interlock.api.parameters import IdempotencyKey, Project
from interlock.api.problems import JsonAnswer, creating, documented
from interlock.api.rows import only, page_model
from interlock.api.supervision_models import (
    ActionReason,
    ActionReport,
    NewWorker,
    OwnReport,
    RecordedMove,
    RecoveredWorker,
    SupervisedWorkerDetail,
    WorkerStatus,
)
from interlock.db.orchestration import jobs
from interlock.workers.client.client import Client
from interlock.workers.supervision.actions import ActionOrder, Answer
from interlock.workers.supervision.recovery import WorkerError, recover_worker
from interlock.workers.supervision.supervised_workers import Supervisor

router = APIRouter(tags=["supervision"])

Names = Annotated[list[Text] | None, Field(max_length=1_000)]


class WorkerOrder(ActionReport):
    """A supervised worker to create."""

    project: Text | None = Field(None, description="whose jobs it may work for; default: the token's only project")
    workspace_id: Text | None = Field(None, description="where it works; default: the project")
    capacity: Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)] | None = Field(
        None, description="how many tasks it takes at once; default: 1"
    )


class WorkerStart(ActionReport):
    """What a worker starts with."""

    tasks: Names = Field(None, description="their names; all must be done before it can complete")
    resources: Names = Field(None, description="what it holds while it runs")


class WorkerResumption(ActionReason):
    """What a worker goes on with."""

    resources: Names = Field(None, description="what it holds now; default: what it held before")


class WorkerCompletion(OwnReport):
    """That a worker has done its tasks."""

    tasks: Names = Field(None, description="their names, if it was started with named ones")


class WorkerFailure(OwnReport):
    """That a worker failed."""

    error: Text | None = Field(None, description="what went wrong; kept in the event")
    retryable: bool = Field(False, description="it could be retried: refused before three retries")


class WorkerFault(ActionReason):
    """An error to recover from."""

    kind: WorkerError
    error: Text | None = Field(None, description="what went wrong; kept in the event")


class WorkerSign(Taken):
    """A sign of life."""

    secret: Text = Field(description="the worker's")


@router.post("/workers", **creating(NewWorker, "It was created before"))
async def create_worker(caller: Called, wanted: WorkerOrder, key: IdempotencyKey = None) -> JsonAnswer:
    """Create an idle worker, whose secret is shown once. Its name comes from the `request_id`, if there is one."""

    def made() -> Answer:
        supervisor = Supervisor(caller.client(wanted.project, write=True))
        said = order(caller, wanted, key)
        return supervisor.create(workspace_id=wanted.workspace_id, capacity=wanted.capacity, order=said)

    return created(await inside(made))


@router.get("/workers", response_model=page_model(SupervisedWorkerDetail), responses=documented())
async def list_workers(paging: Paging, status: Annotated[WorkerStatus | None, IN_STATE] = None) -> JsonAnswer:
    """List supervised workers, newest first, of one project or of all that the token covers."""
    return await paging.page(jobs.workers, worker_shown, status=status)


@router.get("/workers/{ref}", response_model=SupervisedWorkerDetail, responses=documented(409, 410))
async def show_worker(caller: Called, ref: Text, project: Project = None) -> JsonAnswer:
    """Show a supervised worker. REF is its UUID, or its entity id in the project."""

    def read() -> dict[str, Any]:
        with caller.located(ref, project) as (client, found):
            return worker_shown(Supervisor(client).show(found))

    return JsonAnswer(await inside(read))


@router.post("/workers/{ref}/start", response_model=RecordedMove, responses=MOVED)
async def start_worker(acting: Acting, said: WorkerStart) -> JsonAnswer:
    """Start an idle worker: it has been given its tasks, no more than its capacity."""
    given = {"resources": said.resources, "tasks": said.tasks}
    return await acting.move(said, Supervisor, Supervisor.start, **given)


@router.post("/workers/{ref}/heartbeat", response_model=SupervisedWorkerDetail, responses=documented(409, 410))
async def send_worker_heartbeat(caller: Called, ref: Text, sign: WorkerSign, project: Project = None) -> JsonAnswer:
    """Send a heartbeat for a worker by its secret. A running one that is silent for two of them fails."""

    def sent() -> dict[str, Any]:
        with caller.located(ref, project, write=True) as (client, found):
            return worker_shown(Supervisor(client).heartbeat(found, secret=sign.secret))

    return JsonAnswer(await inside(sent))


@router.post("/workers/{ref}/complete", response_model=RecordedMove, responses=MOVED)
async def complete_worker(acting: Acting, said: WorkerCompletion) -> JsonAnswer:
    """Report that a worker has done all its tasks: the worker itself, by its secret, or its supervisor."""
    return await acting.move(said, Supervisor, Supervisor.complete, tasks=said.tasks)


@router.post("/workers/{ref}/fail", response_model=RecordedMove, responses=MOVED)
async def fail_worker(acting: Acting, said: WorkerFailure) -> JsonAnswer:
    """Report that a running worker failed: the worker itself, by its secret, or its supervisor."""
    return await acting.move(said, Supervisor, Supervisor.fail, error=said.error, retryable=said.retryable)


@router.post("/supervisor/workers/{ref}/pause", response_model=RecordedMove, responses=MOVED)
async def pause_worker(acting: Acting, why: ActionReason) -> JsonAnswer:
    """Pause a running worker; it keeps its resources."""
    return await acting.move(why, Supervisor, Supervisor.pause)


@router.post("/supervisor/workers/{ref}/resume", response_model=RecordedMove, responses=MOVED)
async def resume_worker(acting: Acting, why: WorkerResumption) -> JsonAnswer:
    """Resume a paused worker."""
    return await acting.move(why, Supervisor, Supervisor.resume, resources=why.resources)


@router.post("/supervisor/workers/{ref}/terminate", response_model=RecordedMove, responses=MOVED)
async def terminate_worker(acting: Acting, why: ActionReason) -> JsonAnswer:
    """Stop a worker by force, in any state that is not terminal."""
    return await acting.move(why, Supervisor, Supervisor.terminate)


@router.post("/supervisor/workers/{ref}/recover", response_model=RecoveredWorker, responses=MOVED)
async def recover_from_worker_error(acting: Acting, fault: WorkerFault) -> JsonAnswer:
    """Handle a worker's error: retry, pause, fail or terminate it, by its kind (SUPERVISED-5)."""

    def recover(client: Client, ref: str | UUID, order: ActionOrder) -> dict[str, Any]:
        done = recover_worker(client, ref, fault.kind, order, error=fault.error)
        return {"action": done.action, "attempt": done.attempt, "worker": worker_shown(done.subject)}

    return await acting.do(fault, recover)


def worker_shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A supervised worker as the API shows it."""
    return only(SupervisedWorkerDetail, row)
