"""A supervisor's actions on its workers, from their creation to their end (docs/spec/supervision.md)."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.orchestration import jobs
from interlock.workers.engine import worker_secrets
from interlock.workers.supervision.actions import ActionOrder, Actions, Answer, born
from interlock.workflows.errors import IllegalTransition
from interlock.workflows.input.arguments import FreeText, door

TYPE = "supervised_worker"
SUPERVISOR = ActionOrder("supervisor")  # of actions that only report a fact, if nobody else is named


class Supervisor(Actions):
    """Actions on supervised workers. Each raises what `actions.perform` raises; a repetition acts once.

    To pause, resume, relieve or terminate a worker, an order must say who and why: `BadInput` otherwise. Only the
    worker itself (`ActionOrder.secret`), who created it or its job, or an operator may complete or fail it: `NotYours`
    otherwise.

    A worker's resources (`resources`) are named when it starts or resumes, and released when it ends, as history shows.
    """

    type_ = TYPE
    _page = staticmethod(jobs.workers)

    @door
    def create(
        self,
        *,
        project: str | UUID | None = None,
        workspace_id: str | None = None,
        capacity: int | None = None,
        order: ActionOrder = SUPERVISOR,
    ) -> Answer:
        """Create an idle worker. The answer has its `secret`, unless this is a repetition.

        Args:
            project: the project whose jobs it may work for; default: the client's.
            workspace_id: where it works; default: the project.
            capacity: how many tasks it takes at once; default: 1.
            order: who wants it; its request_id names the worker, so that repeating it creates no second one.

        Raises:
            RequestConflict: the request_id created another worker.
        """
        secret = worker_secrets.make()
        said = {"workspace_id": workspace_id or None, "capacity": capacity}
        context = {
            **worker_secrets.digest_of(secret),
            **{name: value for name, value in said.items() if value is not None},
        }
        worker_id, replayed = born(self.client, TYPE, "w", order, project=project, context=context)
        response = {"to": "IDLE", "id": str(worker_id)}
        return Answer(
            self._row(worker_id), order.request_id or None, response, replayed, secret=None if replayed else secret
        )

    @door
    def start(
        self,
        ref: str | UUID,
        order: ActionOrder = SUPERVISOR,
        *,
        resources: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
    ) -> Answer:
        """IDLE → RUNNING: it has been given its tasks, no more than its capacity, and holds these resources.

        If the tasks are named, it can complete only once they are reported done (SUPERVISED-8).
        """
        given = {"resources": resources and sorted(resources), "tasks": tasks and list(tasks)}
        return self._act(ref, "start_task", order, **given)

    @door
    def pause(self, ref: str | UUID, order: ActionOrder) -> Answer:
        """RUNNING → PAUSED: it keeps its resources."""
        return self._act(ref, "pause", order.explained())

    @door
    def resume(self, ref: str | UUID, order: ActionOrder, *, resources: Sequence[str] | None = None) -> Answer:
        """PAUSED → RUNNING: it holds these resources now; default: those it held before."""
        return self._act(ref, "resume", order.explained(), resources=resources and sorted(resources))

    @door
    def complete(
        self, ref: str | UUID, order: ActionOrder = SUPERVISOR, *, tasks: Sequence[str] | None = None
    ) -> Answer:
        """RUNNING → COMPLETED: all its tasks are done; `tasks` are those, if it was started with named ones."""
        return self._act(ref, "complete_tasks", order, completed_tasks=tasks and list(tasks))

    @door
    def fail(
        self,
        ref: str | UUID,
        order: ActionOrder = SUPERVISOR,
        *,
        error: FreeText | None = None,
        retryable: bool = False,
    ) -> Answer:
        """RUNNING → FAILED: its error is not retryable, or was retried three times since its last move."""
        return self._act(ref, "error_unrecoverable", order, error=error, retryable=retryable or None)

    @door
    def heartbeat(self, ref: str | UUID, *, secret: FreeText) -> dict[str, Any]:
        """Record that a worker is alive (SUPERVISED-9).

        Args:
            ref: the worker.
            secret: of its creation.

        Returns:
            The worker as it is now.

        Raises:
            NotYours: the secret is not the worker's.
            IllegalTransition: it has ended (409): stop its work.
        """
        proof, worker_id = worker_secrets.checked(secret), self._identified(ref)
        with transaction(self.client.runtime.database) as connection:
            alive = jobs.heartbeat(connection, worker_id, proof)
        found = self._row(worker_id)
        if not alive:
            state = found["status"]
            raise IllegalTransition(f"{TYPE} {found['entity_id']!r} is {state}: stop its work", state=state, legal=())
        return found

    @door
    def terminate(self, ref: str | UUID, order: ActionOrder) -> Answer:
        """IDLE, RUNNING or PAUSED → TERMINATED, by force."""
        return self._act(ref, "terminate", order.explained())

    @door
    def relieve(self, ref: str | UUID, order: ActionOrder, *, error: FreeText | None = None) -> Answer:
        """RUNNING → PAUSED, and its resources are released (SUPERVISED-5)."""
        return self._act(ref, "pause", order.explained(), resources=[], error=error)

    def _row(self, worker_id: UUID) -> dict[str, Any]:
        with transaction(self.client.runtime.database) as connection:
            return dict(jobs.worker(connection, worker_id))
