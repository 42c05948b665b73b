"""What other processes do to supervised workers and jobs."""

from typing import Any
from uuid import UUID

from workers.client import Client
from workers.runtime import Runtime
from workers.settings import Settings
from workers.supervision.acting import Order
from workers.supervision.jobs import Jobs
from workers.supervision.supervisor import Supervisor


def acted(settings: Settings, action: str, worker: str, request_id: str) -> dict[str, Any]:
    """Act on a worker, under a request_id that others use too; the recorded response."""
    with Client(Runtime(settings)) as client:
        return dict(getattr(Supervisor(client), action)(UUID(worker), Order(request_id=request_id)).response)


def allocated(settings: Settings, job: str) -> str:
    """Allocate a job's workers; the status it has then."""
    with Client(Runtime(settings)) as client:
        return str(Jobs(client).allocate(UUID(job)).subject["status"])
