"""Runs of plans, as the API shows them and takes them."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from interlock.api.models import Taken, Text

RunState = Literal["pending", "running", "succeeded", "failed", "canceled"]


class AcceptedRun(BaseModel):
    """A run that was accepted."""

    id: UUID
    name: str
    project: str
    plan_sha256: str = Field(description="of the stored plan, under the hash of the run's birth")


class RunSummary(BaseModel):
    """A run, as lists show it."""

    id: UUID
    name: str
    project: str
    state: RunState
    priority: int
    plan: str | None = Field(description="the plan's name")
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None


class RunTree(RunSummary):
    """A run with its workstreams; each has its tasks, gates and patches. As `interlock run show --json`."""

    model_config = ConfigDict(extra="allow")

    version: int
    created_by: str
    title: str | None
    retry_of: str | None
    counts: dict[str, dict[str, int]] = Field(description="of workstreams and tasks by state")
    workstreams: list[dict[str, Any]]
    regressions: list[dict[str, Any]]


class RunReason(Taken):
    """Why a run is canceled; kept in the event."""

    reason: Text = Field(min_length=1, examples=["wrong branch"])
    request_id: Text = Field("", description="the idempotency key: the same again fires once; default: a new one")


class RunResumption(Taken):
    """How a run is resumed."""

    name: Text | None = Field(None, description="of the new run, unique in the project; default: from the plan's")


class RunLog(BaseModel):
    """A part of what an attempt at a task printed, stdout and stderr together; secrets are masked."""

    task: str
    state: str = Field(description="the task's")
    attempt: int | None = Field(description="which, from 1 on; null: there is no such attempt yet")
    attempts: int = Field(description="how many there are")
    worker: str | None
    host: str | None
    began_at: datetime | None
    ended_at: datetime | None
    trigger: str | None = Field(description="that ended the attempt")
    exit_code: int | None
    error: str | None
    text: str
    next: int = Field(description="`after` of the next part, in bytes")
    ended: bool = Field(description="nothing more will come of this attempt")
    reported: dict[str, str] = Field(description="what an agent reported as its output")
    verified: bool | None = Field(description="whether it is what history says; null: not known here, or not yet")
    note: str | None = Field(description="what a reader must know, such as that it is on another machine")


class RunTaskResult(BaseModel):
    """How a task ended."""

    id: UUID
    task: str | None
    state: str
    exit_code: int | None
    completed_at: datetime
    result: Any = Field(description="what it gave for later tasks; null if nothing")


class RunResults(BaseModel):
    """Ended tasks of a run, in the order of the plan's tasks."""

    items: list[RunTaskResult]
    next: UUID | None = Field(description="`after` of the next page; null on the last")
