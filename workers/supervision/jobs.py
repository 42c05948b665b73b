"""Jobs, from submitted to their end, and the workers they are given (MVP, section 2)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from db import requests, supervision
from db.connect import transaction
from workers.client import Client
from workers.firing import named
from workers.lanes import Drain
from workers.supervision.acting import Answer, Order, born, entity_id, identified, perform
from workers.supervision.supervisor import NOBODY
from workflows.errors import BadInput
from workflows.supervision.job import DEEPEST, MOST_WORKERS

TYPE = "job"
DESCRIPTION_LIMIT = 10_000


class Jobs:
    """Actions on jobs. Each raises what `acting.perform` raises; a repetition acts once.

    A job's workers move with it in the commit of its own move: its definition says how.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def submit(
        self,
        description: str,
        *,
        project_id: UUID | None = None,
        parent: str | UUID | None = None,
        depth: int | None = None,
        worker_count: int = 1,
        order: Order = NOBODY,
    ) -> Answer:
        """Submit a job.

        Args:
            description: what is to be done.
            project_id: whose idle workers it may get; unset: its parent's.
            parent: the job it is a part of.
            depth: 0 to 5; below a parent it is the parent's and one more. Unset: just that, or 0.
            worker_count: how many workers it needs, 1 to 10.
            order: who wants it; its request_id names the job, so that repeating it submits no second one.

        Raises:
            BadInput: a number is out of its bounds, or does not fit the parent's depth.
            UnknownInstance: no such parent.
            RequestConflict: the request_id submitted another job.
        """
        above = self.show(parent) if parent else None
        project = _project(project_id, above)
        context: dict[str, Any] = {
            "task_description": named("description", description, DESCRIPTION_LIMIT),
            "depth": _depth(depth, above),
            "worker_count": worker_count,
        }
        if above:
            context["parent_job_id"] = str(above["id"])
        name = entity_id("j", project, order.request_id)
        birth = self.client.birth(TYPE, name, project_id=project, context=context, by=order.by)
        job_id, replayed = born(self.client, birth, order)
        return Answer(self._row(job_id), order.request_id or None, {"to": "SUBMITTED", "id": str(job_id)}, replayed)

    def validate(self, ref: str | UUID, order: Order = NOBODY) -> Answer:
        """SUBMITTED → PENDING: from now on it waits for its workers."""
        return self._act(ref, "validate", order)

    def allocate(self, ref: str | UUID, order: Order = NOBODY) -> Answer:
        """PENDING → RUNNING with as many idle workers as it asks for, which start with it.

        Where there are too few it stays PENDING, holding none, and nothing is put on record: the sweep `jobs` asks
        again every few seconds, and so may anybody.
        """
        job_id = identified(self.client, TYPE, ref)
        with transaction(self.client.runtime.database) as connection:
            asked_before = order.request_id and requests.by_ids(connection, [order.request_id])
            short = not asked_before and not supervision.reserve(connection, job_id)
            standing = dict(supervision.job(connection, job_id))
        if short and standing["status"] == "PENDING":
            says = f"too few idle workers: {standing['worker_count']} needed; asked for again by itself"
            return Answer(standing, None, {"from": "PENDING", "to": "PENDING", "message": says})
        return self._act(job_id, "allocate_resources", order)

    def succeed(self, ref: str | UUID, order: Order = NOBODY, *, result: Mapping[str, Any] | None = None) -> Answer:
        """RUNNING → COMPLETED: its workers complete; paused ones, which cannot, are terminated. `result` is kept."""
        answer = self._act(ref, "success", order, result=result)
        with transaction(self.client.runtime.database) as connection:
            left = supervision.stranded(connection, job_id=answer.subject["id"], limit=MOST_WORKERS)
        for each in left:
            perform(self.client, each["id"], "terminate", Order(order.by, "its job is completed"))
        return replace(answer, subject=self._row(answer.subject["id"])) if left else answer

    def fail(self, ref: str | UUID, order: Order = NOBODY, *, error: str | None = None) -> Answer:
        """RUNNING → FAILED: its workers are terminated."""
        return self._act(ref, "error", order, error=error)

    def cancel(self, ref: str | UUID, order: Order = NOBODY, *, error: str | None = None) -> Answer:
        """SUBMITTED, PENDING or RUNNING → CANCELED: its workers are terminated, its children canceled."""
        return self._act(ref, "cancel", order, error=error)

    def show(self, ref: str | UUID) -> dict[str, Any]:
        """A job as it stands, with its workers. Raises `UnknownInstance`."""
        return self._row(identified(self.client, TYPE, ref))

    def newest(self, *, status: str | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """The newest jobs, of one status if given."""
        with transaction(self.client.runtime.database) as connection:
            return [dict(row) for row in supervision.jobs_page(connection, status=status, limit=limit)]

    def tree(self, ref: str | UUID) -> list[dict[str, Any]]:
        """A job and all below it, parents before their children."""
        job_id = identified(self.client, TYPE, ref)
        with transaction(self.client.runtime.database) as connection:
            return [dict(row) for row in supervision.tree(connection, job_id)]

    def _act(self, ref: str | UUID, trigger: str, order: Order, **data: Any) -> Answer:
        receipt = perform(self.client, identified(self.client, TYPE, ref), trigger, order, **data)
        self._move_followers(receipt.workflow_id)
        return Answer(self._row(receipt.workflow_id), receipt.request_id, receipt.result or {}, receipt.replayed)

    def _move_followers(self, job_id: UUID) -> None:
        """See its workers and descendants follow, a generation a turn; whatever is missed, a Celery worker applies."""
        drain = Drain(self.client.runtime)
        for _ in range(DEEPEST + 2):
            with transaction(self.client.runtime.database) as connection:
                lanes = supervision.lanes_following(connection, job_id)
            for lane in lanes:
                drain.lane(lane)
            if not lanes:
                return

    def _row(self, job_id: UUID) -> dict[str, Any]:
        with transaction(self.client.runtime.database) as connection:
            held = supervision.workers(connection, job_id=job_id)
            return dict(supervision.job(connection, job_id)) | {"workers": [dict(each) for each in held]}


def _project(said: UUID | None, above: Mapping[str, Any] | None) -> UUID:
    due = above["project_id"] if above else said
    if due is None:
        raise BadInput("a job without a parent needs a project")
    if said not in (None, due):
        raise BadInput(f"its parent is of project {due}, not of {said}")
    return UUID(str(due))


def _depth(said: int | None, above: Mapping[str, Any] | None) -> int:
    if above is None:
        return said or 0
    due = int(above["depth"]) + 1
    if said not in (None, due):
        raise BadInput(f"depth must be {due}, one below its parent's; got {said}")
    if due > DEEPEST:
        raise BadInput(f"jobs are at most {DEEPEST} deep, and its parent is at {due - 1} already")
    return due
