"""Supervised workers and their jobs, as the API shows them and takes them."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from interlock.api.models import Taken, Text

WorkerStatus = Literal["IDLE", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "TERMINATED"]
JobStatus = Literal["SUBMITTED", "PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELED"]


class ActionReason(Taken):
    """Why something is done to what others started; kept in the event."""

    reason: Text = Field(examples=["memory is short"])
    request_id: Text = Field("", description="the idempotency key: the same again acts once; default: a new one")


class ActionReport(Taken):
    """What is so: a reason is welcome, and kept in the event."""

    reason: Text | None = None
    request_id: Text = Field("", description="the idempotency key: the same again acts once; default: a new one")


class OwnReport(ActionReport):
    """What a worker may say of itself, by its secret, or its supervisor of it."""

    secret: Text = Field("", description="of a worker: its own, or one of the job's; a supervisor needs none")


class RecordedMove(BaseModel):
    """The recorded outcome of an action, the same for each repetition of its `request_id`."""

    id: UUID
    entity_id: str
    project: str
    status: str = Field(description="the state that it entered; it may have moved on since")
    from_state: str | None = Field(description="the state that it left; null: it was created")
    seq: int | None = Field(description="the number of the event in its history; null: nothing was recorded")
    event_id: str | None
    request_id: str | None
    message: str | None = Field(description="why nothing was done, if nothing was")


class NewWorker(RecordedMove):
    """A supervised worker that was created."""

    secret: str | None = Field(description="by which it speaks for itself; shown once: null if it is there already")


class SupervisedWorkerDetail(BaseModel):
    """A supervised worker."""

    id: UUID
    entity_id: str
    project: str
    status: WorkerStatus
    version: int = Field(description="the number of its events")
    workspace_id: str
    capacity: int = Field(description="how many tasks it takes at once")
    tasks: list[str] = Field(description="those that it was started with and that are not done")
    resources: list[str] = Field(description="what it holds")
    metadata: dict[str, Any]
    last_heartbeat: datetime
    created_at: datetime
    updated_at: datetime


class JobSummary(BaseModel):
    """A job."""

    id: UUID
    entity_id: str
    status: JobStatus
    parent_job_id: UUID | None
    depth: int
    worker_count: int = Field(description="how many workers it needs")
    task_description: str
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None


class JobTree(BaseModel):
    """A job and all its descendants, parents before their children."""

    items: list[JobSummary]


class JobDetail(JobSummary):
    """A job with its workers."""

    project: str
    version: int = Field(description="the number of its events")
    workers: list[SupervisedWorkerDetail]


class RecoveredWorker(BaseModel):
    """What was done about a worker's error."""

    action: str = Field(description="`retry`, `pause`, `fail` or `terminate`")
    attempt: int = Field(description="which retry this is, from 1; 0: nothing is retried")
    worker: SupervisedWorkerDetail


class RecoveredJob(BaseModel):
    """What was done about a job's error."""

    action: str = Field(description="`respawn`, `fail`, `cancel` or `wait`")
    job: JobDetail
    replacement: SupervisedWorkerDetail | None = Field(description="the worker in a crashed one's place")
    secret: str | None = Field(description="of a replacement that was just created; shown once")
