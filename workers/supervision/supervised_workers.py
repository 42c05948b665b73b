"""A supervisor's actions on its workers, from their creation to their end (docs/spec/supervision.md)."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.orchestration import jobs
from interlock.workers.client.client import Client
from interlock.workers.engine import worker_secrets
from interlock.workers.supervision.actions import ActionOrder, Answer, born, identified, perform
from interlock.workflows.input.arguments import FreeText, door

TYPE = "supervised_worker"
SUPERVISOR = ActionOrder("supervisor")  # of actions that only report a fact, if nobody else is named


class Supervisor:
    """Actions on supervised workers. Each raises what `actions.perform` raises; a repetition acts once.

    To pause, resume, relieve or terminate a worker, an order must say who and why: `BadInput` otherwise. Only the
    worker itself (`ActionOrder.secret`), who created it or its job, or an operator may complete or fail it: `NotYours`
    otherwise.

    A worker's resources (`resources`) are named when it starts or resumes, and released when it ends, as history shows.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    @door
    def create(
        self, *, project: str | UUID | None = None, workspace_id: str | None = None, order: ActionOrder = SUPERVISOR
    ) -> Answer:
        """Create an idle worker. The answer has its `secret`, unless this is a repetition.

        Args:
            project: the project whose jobs it may work for; default: the client's.
            workspace_id: where it works; default: the project.
            order: who wants it; its request_id names the worker, so that repeating it creates no second one.

        Raises:
            RequestConflict: the request_id created another worker.
        """
        secret = worker_secrets.make()
        context = {**worker_secrets.digest_of(secret), **({"workspace_id": workspace_id} if workspace_id else {})}
        worker_id, replayed = born(self.client, TYPE, "w", order, project=project, context=context)
        response = {"to": "IDLE", "id": str(worker_id)}
        return Answer(
            self._row(worker_id), order.request_id or None, response, replayed, secret=None if replayed else secret
        )

    @door
    def start(
        self, ref: str | UUID, order: ActionOrder = SUPERVISOR, *, resources: Sequence[str] | None = None
    ) -> Answer:
        """IDLE → RUNNING: it has been given its task, and holds these resources."""
        return self._act(ref, "start_task", order, resources=resources and sorted(resources))

    @door
    def pause(self, ref: str | UUID, order: ActionOrder) -> Answer:
        """RUNNING → PAUSED: it keeps its resources."""
        return self._act(ref, "pause", order.explained())

    @door
    def resume(self, ref: str | UUID, order: ActionOrder, *, resources: Sequence[str] | None = None) -> Answer:
        """PAUSED → RUNNING: it holds these resources now; default: those it held before."""
        return self._act(ref, "resume", order.explained(), resources=resources and sorted(resources))

    @door
    def complete(self, ref: str | UUID, order: ActionOrder = SUPERVISOR) -> Answer:
        """RUNNING → COMPLETED: all its tasks are done."""
        return self._act(ref, "complete_tasks", order)

    @door
    def fail(self, ref: str | UUID, order: ActionOrder = SUPERVISOR, *, error: FreeText | None = None) -> Answer:
        """RUNNING → FAILED: its error is not retryable."""
        return self._act(ref, "error_unrecoverable", order, error=error)

    @door
    def terminate(self, ref: str | UUID, order: ActionOrder) -> Answer:
        """IDLE, RUNNING or PAUSED → TERMINATED, by force."""
        return self._act(ref, "terminate", order.explained())

    @door
    def relieve(self, ref: str | UUID, order: ActionOrder, *, error: FreeText | None = None) -> Answer:
        """RUNNING → PAUSED, and its resources are released (SUPERVISED-5)."""
        return self._act(ref, "pause", order.explained(), resources=[], error=error)

    @door
    def show(self, ref: str | UUID) -> dict[str, Any]:
        """A worker as it is now. Raises `UnknownInstance`."""
        return self._row(identified(self.client, TYPE, ref))

    @door
    def newest(self, *, project: str | None = None, status: str | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """The newest workers, of one project and of one status if given."""
        with transaction(self.client.runtime.database) as connection:
            return [dict(row) for row in jobs.workers(connection, project=project, status=status, limit=limit)]

    def _act(self, ref: str | UUID, trigger: str, order: ActionOrder, **data: Any) -> Answer:
        receipt = perform(self.client, identified(self.client, TYPE, ref), trigger, order, **data)
        return Answer(self._row(receipt.workflow_id), receipt.request_id, receipt.result or {}, receipt.replayed)

    def _row(self, worker_id: UUID) -> dict[str, Any]:
        with transaction(self.client.runtime.database) as connection:
            return dict(jobs.worker(connection, worker_id))
