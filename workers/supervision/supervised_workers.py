"""What a supervisor does with its workers, from their creation to their end (MVP, section 1)."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from db import supervision
from db.connect import transaction
from workers.client import Client
from workers.supervision.acting import Answer, Order, born, entity_id, identified, perform

TYPE = "supervised_worker"
NOBODY = Order()


class Supervisor:
    """Actions on supervised workers. Each raises what `acting.perform` raises; a repetition acts once.

    What a worker holds (`resources`) is named when it starts or resumes, and given back when it ends: history tells it.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def create(self, project_id: UUID, *, workspace_id: str | None = None, order: Order = NOBODY) -> Answer:
        """Create an idle worker.

        Args:
            project_id: the project whose jobs it may work for.
            workspace_id: where it works; unset: the project.
            order: who wants it; its request_id names the worker, so that repeating it creates no second one.

        Raises:
            RequestConflict: the request_id made another worker.
        """
        context = {"workspace_id": workspace_id} if workspace_id else {}
        name = entity_id("w", project_id, order.request_id)
        birth = self.client.birth(TYPE, name, project_id=project_id, context=context, by=order.by)
        worker_id, replayed = born(self.client, birth, order)
        return Answer(self._row(worker_id), order.request_id or None, {"to": "IDLE", "id": str(worker_id)}, replayed)

    def start(self, ref: str | UUID, order: Order = NOBODY, *, resources: Sequence[str] | None = None) -> Answer:
        """IDLE → RUNNING: it has been given its task, and holds these resources."""
        return self._act(ref, "start_task", order, resources=resources and sorted(resources))

    def pause(self, ref: str | UUID, order: Order = NOBODY) -> Answer:
        """RUNNING → PAUSED: it keeps what it holds."""
        return self._act(ref, "pause", order)

    def resume(self, ref: str | UUID, order: Order = NOBODY, *, resources: Sequence[str] | None = None) -> Answer:
        """PAUSED → RUNNING: it holds these resources now; unset: what it held before."""
        return self._act(ref, "resume", order, resources=resources and sorted(resources))

    def complete(self, ref: str | UUID, order: Order = NOBODY) -> Answer:
        """RUNNING → COMPLETED: all its tasks are done."""
        return self._act(ref, "complete_tasks", order)

    def fail(self, ref: str | UUID, order: Order = NOBODY, *, error: str | None = None) -> Answer:
        """RUNNING → FAILED: its error is not retryable."""
        return self._act(ref, "error_unrecoverable", order, error=error)

    def terminate(self, ref: str | UUID, order: Order = NOBODY) -> Answer:
        """IDLE, RUNNING or PAUSED → TERMINATED, by force."""
        return self._act(ref, "terminate", order)

    def relieve(self, ref: str | UUID, order: Order = NOBODY, *, error: str | None = None) -> Answer:
        """RUNNING → PAUSED, and what it holds is given back (MVP, section 4.1)."""
        return self._act(ref, "pause", order, resources=[], error=error)

    def show(self, ref: str | UUID) -> dict[str, Any]:
        """A worker as it stands. Raises `UnknownInstance`."""
        return self._row(identified(self.client, TYPE, ref))

    def newest(self, *, status: str | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """The newest workers, of one status if given."""
        with transaction(self.client.runtime.database) as connection:
            return [dict(row) for row in supervision.workers(connection, status=status, limit=limit)]

    def _act(self, ref: str | UUID, trigger: str, order: Order, **data: Any) -> Answer:
        receipt = perform(self.client, identified(self.client, TYPE, ref), trigger, order, **data)
        return Answer(self._row(receipt.workflow_id), receipt.request_id, receipt.result or {}, receipt.replayed)

    def _row(self, worker_id: UUID) -> dict[str, Any]:
        with transaction(self.client.runtime.database) as connection:
            return dict(supervision.worker(connection, worker_id))
