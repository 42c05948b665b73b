"""A plain implementation of workflows on `transitions`, an ORM and Celery: a model, `load`, `save`.

It handles one row at a time: read the instance, build its Machine with every transition, fire, write the instance and
one history row, commit, publish. Nothing is slowed down on purpose, and nothing is optimized.
"""

import json
import logging
import os
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from celery import Celery, Task, signals
from redis import Redis
from sqlalchemy import DateTime, ForeignKey, String, create_engine
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from transitions import Machine, MachineError

from bench.nodes import BROKER, DATABASE

logger = logging.getLogger(__name__)
celery_app = Celery("plain_celery", broker=os.environ.get(BROKER, "redis://"))


class Base(DeclarativeBase):
    """The base of the tables."""


class WorkflowInstance(Base):
    """Table `workflow_instances`."""

    __tablename__ = "workflow_instances"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    workflow_type: Mapped[str] = mapped_column(String(50))
    current_state: Mapped[str] = mapped_column(String(100))
    entity_id: Mapped[str] = mapped_column(String(100))
    project_id: Mapped[UUID]
    context: Mapped[dict[str, Any]] = mapped_column(JSONB, default=dict)
    error: Mapped[str | None]
    retry_count: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class WorkflowTransition(Base):
    """Table `workflow_transitions`, the event sourcing table."""

    __tablename__ = "workflow_transitions"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    workflow_id: Mapped[UUID] = mapped_column(ForeignKey("workflow_instances.id"))
    from_state: Mapped[str] = mapped_column(String(100))
    to_state: Mapped[str] = mapped_column(String(100))
    trigger: Mapped[str] = mapped_column(String(100))
    triggered_by: Mapped[str | None] = mapped_column(String(100))
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", JSONB, default=dict)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class StoryWorkflow:
    """The machine of a story."""

    states = ["analysis", "design", "implementation", "review", "testing", "done", "blocked"]  # noqa: RUF012

    def __init__(self, story_id: str) -> None:
        self.story_id = story_id
        self.machine = Machine(model=self, states=self.states, initial="analysis")
        self.machine.add_transition("design_complete", "analysis", "design")
        self.machine.add_transition("start_coding", "design", "implementation")
        self.machine.add_transition("submit_pr", "implementation", "review")
        self.machine.add_transition("request_changes", "review", "implementation")
        self.machine.add_transition("approve", "review", "testing")
        self.machine.add_transition("tests_pass", "testing", "done")
        self.machine.add_transition("tests_fail", "testing", "implementation")
        self.machine.add_transition("block", "*", "blocked")
        self.machine.add_transition("unblock", "blocked", "implementation")


class WorkflowService:
    """A story with its row: load it, fire a trigger, save it."""

    def __init__(self, session: Session, row: WorkflowInstance) -> None:
        self.session, self.row, self.fired = session, row, ""
        self.story: Any = StoryWorkflow(row.entity_id)
        self.story.machine.set_state(row.current_state)
        self.project_id = row.project_id

    @classmethod
    def load(cls, workflow_id: str) -> "WorkflowService":
        """The workflow of an instance."""
        session = sessions()()
        return cls(session, session.get_one(WorkflowInstance, UUID(workflow_id)))

    @property
    def state(self) -> str:
        """The current state."""
        return str(self.story.state)

    def trigger(self, trigger: str) -> None:
        """Fire; raises `MachineError`."""
        self.story.trigger(trigger)
        self.fired = trigger

    def save(self) -> None:
        """UPDATE the instance, INSERT the transition, commit."""
        now, before = datetime.now(UTC), self.row.current_state
        if self.fired:
            self.session.add(
                WorkflowTransition(
                    id=uuid4(),
                    workflow_id=self.row.id,
                    from_state=before,
                    to_state=self.state,
                    trigger=self.fired,
                    triggered_by="system",
                    created_at=now,
                )
            )
        self.row.current_state, self.row.updated_at = self.state, now
        self.session.commit()


@celery_app.task(bind=True, ignore_result=True)
def execute_workflow_step(self: Task, workflow_id: str, trigger: str) -> None:
    """Execute a workflow state transition as a Celery task."""
    workflow = WorkflowService.load(workflow_id)
    try:
        workflow.trigger(trigger)
        workflow.save()
        message = {"type": "workflow_transition", "workflow_id": workflow_id, "new_state": workflow.state}
        event_bus().publish(f"project:{workflow.project_id}", json.dumps(message))
    except MachineError:
        logger.warning("Invalid transition %s from %s", trigger, workflow.state)
    except Exception as error:
        workflow.row.error = str(error)
        workflow.row.retry_count += 1
        workflow.save()
        raise self.retry(exc=error, countdown=60 * workflow.row.retry_count) from error
    finally:
        workflow.session.close()


@cache
def sessions() -> sessionmaker[Session]:
    """This process's sessions."""
    return sessionmaker(create_engine(os.environ[DATABASE].replace("postgresql://", "postgresql+psycopg://", 1)))


@cache
def event_bus() -> Redis:
    """This process's event bus."""
    return Redis.from_url(os.environ[BROKER])


@signals.worker_ready.connect
def _say_ready(**_: object) -> None:
    Path(os.environ["INTERLOCK_READY_FILE"]).touch()
