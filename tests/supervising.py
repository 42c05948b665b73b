"""Actions on supervised workers and jobs, run by other processes."""

from typing import Any
from uuid import UUID

from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workers.supervision.actions import ActionOrder
from interlock.workers.supervision.jobs import Jobs
from interlock.workers.supervision.supervised_workers import Supervisor


def acted(settings: Settings, action: str, worker: str, request_id: str) -> dict[str, Any]:
    """Act on a worker, with a request_id that other processes use too; returns the recorded response."""
    with Client(Runtime(settings)) as client:
        return dict(getattr(Supervisor(client), action)(UUID(worker), ActionOrder("ann", "why", request_id)).response)


def allocated(settings: Settings, job: str) -> str:
    """Allocate a job's workers; returns its status."""
    with Client(Runtime(settings)) as client:
        return str(Jobs(client).allocate(UUID(job)).subject["status"])
