"""Jobs, from submission to their end, and the workers allocated to them (docs/spec/supervision.md)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.connection import transaction
from interlock.db.core import limits, requests
from interlock.db.orchestration import jobs
from interlock.workers.client.operations import fire_by_right
from interlock.workers.client.partition_drainer import Drain
from interlock.workers.client.receipts import Receipt
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.supervision.actions import ActionOrder, Actions, Answer, born, perform, right_to, seen_applied
from interlock.workers.supervision.supervised_workers import SUPERVISOR
from interlock.workflows.errors import BadInput
from interlock.workflows.input import names
from interlock.workflows.input.arguments import FreeText, door
from interlock.workflows.machines.supervision.job import DEEPEST, JOB, MOST_WORKERS
from interlock.workflows.output.suggestions import offered

TYPE = "job"


class Jobs(Actions):
    """Actions on jobs. Each raises what `actions.perform` raises; a repetition acts once.

    To cancel a job, an order must say who and why: `BadInput` otherwise. Anyone may cancel; all else only who submitted
    it or an operator may, and its workers may end it: `NotYours` otherwise.

    The commit of a job's move also fires the triggers on its workers that its definition names.
    """

    type_ = TYPE
    _page = staticmethod(jobs.jobs_page)

    @door
    def submit(
        self,
        description: str,
        *,
        project: str | UUID | None = None,
        parent: str | UUID | None = None,
        depth: int | None = None,
        worker_count: int = 1,
        timeout_seconds: float | None = None,
        retry_of: str | UUID | None = None,
        tool: str | None = None,
        order: ActionOrder = SUPERVISOR,
    ) -> Answer:
        """Submit a job.

        Args:
            description: what is to be done.
            project: whose idle workers it may get; default: the client's. Its parent must be of the same.
            parent: the job it is a part of.
            depth: 0 to 5; with a parent, the parent's plus one. Default: just that, or 0.
            worker_count: how many workers it needs, 1 to 10.
            timeout_seconds: how long it may run; then it is canceled. Default: the setting `job_timeout_seconds`.
            retry_of: the job that it does again, which has ended (JOB-9).
            tool: the tool that it uses: limits on that tool count it, too.
            order: who wants it; its request_id names the job, so that repeating it submits no second one, also if the
                settings have changed meanwhile.

        Raises:
            BadInput: a number is out of its bounds or does not fit the parent's depth, or `retry_of` has not ended.
            UnknownInstance: no such parent, or no such job to do again.
            RequestConflict: the request_id submitted another job.
        """
        above = self.show(parent) if parent else None
        project = names.project_or(project, self.client.project)
        if above and above["project"] != project:
            its = above["project"]
            raise BadInput(f"its parent belongs to project {its}, not {project}; give --project {its}")
        context: dict[str, Any] = {
            "task_description": names.words("description", description),
            "depth": _depth(depth, above),
            "worker_count": worker_count,
        }
        if timeout_seconds is not None:
            context["timeout_sec"] = timeout_seconds
        if above:
            context["parent_job_id"] = str(above["id"])
        if tool is not None:
            context["tool"] = names.name("tool", tool)
        if retry_of:
            context["retry_of"] = str(_ended(self.show(retry_of))["id"])
        job_id, replayed = born(self.client, TYPE, "j", order, project=project, context=context)
        return Answer(self._row(job_id), order.request_id or None, {"to": "SUBMITTED", "id": str(job_id)}, replayed)

    @door
    def validate(self, ref: str | UUID, order: ActionOrder = SUPERVISOR) -> Answer:
        """SUBMITTED → PENDING: from now on it waits for its workers."""
        return self._act(ref, "validate", order)

    @door
    def allocate(self, ref: str | UUID, order: ActionOrder = SUPERVISOR) -> Answer:
        """PENDING → RUNNING with as many idle workers as it needs, which start with it.

        If there are too few, or a limit has no room for it (LIMIT-3), it stays PENDING without any, and nothing is
        recorded. The sweep `jobs` tries again every few seconds; its supervisor may call this again.
        """
        job_id = self._identified(ref)
        right = right_to(self.client, job_id, "allocate_resources", order)
        reason = {} if order.reason is None else {"reason": order.reason}
        firing = Firing(job_id, "allocate_resources", order.by, order.request_id, reason)
        with transaction(self.client.runtime.database) as connection:
            already_requested = order.request_id and requests.by_ids(connection, [order.request_id])
            short = not already_requested and not jobs.reserve(connection, job_id)
            job = dict(jobs.job(connection, job_id))
            if short and job["status"] == "PENDING":
                return Answer(job, None, {"from": "PENDING", "to": "PENDING", "message": _waits(connection, job)})
            receipt = fire_by_right(self.client, firing, right, connection)
        receipt = seen_applied(self.client, receipt)
        self._move_followers(job_id)
        return Answer(self._row(job_id), receipt.request_id, receipt.result or {}, receipt.replayed)

    @door
    def succeed(
        self, ref: str | UUID, order: ActionOrder = SUPERVISOR, *, result: Mapping[str, Any] | None = None
    ) -> Answer:
        """RUNNING → COMPLETED: its workers complete; paused ones, which cannot, are terminated. `result` is kept."""
        answer = self._act(ref, "success", order, result=result)
        with transaction(self.client.runtime.database) as connection:
            left = jobs.stranded(connection, job_id=answer.subject["id"], limit=MOST_WORKERS)
        for each in left:
            perform(self.client, each["id"], "terminate", ActionOrder(order.by, "its job is completed"))
        return replace(answer, subject=self._row(answer.subject["id"])) if left else answer

    @door
    def fail(self, ref: str | UUID, order: ActionOrder = SUPERVISOR, *, error: FreeText | None = None) -> Answer:
        """RUNNING → FAILED: its workers are terminated."""
        return self._act(ref, "error", order, error=error)

    @door
    def cancel(self, ref: str | UUID, order: ActionOrder, *, error: FreeText | None = None) -> Answer:
        """SUBMITTED, PENDING or RUNNING → CANCELED: its workers are terminated, its children canceled."""
        return self._act(ref, "cancel", order.explained(), error=error)

    @door
    def tree(self, ref: str | UUID) -> list[dict[str, Any]]:
        """A job and all its descendants, parents before their children."""
        job_id = self._identified(ref)
        with transaction(self.client.runtime.database) as connection:
            return [dict(row) for row in jobs.tree(connection, job_id)]

    def _perform(self, ref: str | UUID, trigger: str, order: ActionOrder, **data: Any) -> Receipt:
        receipt = super()._perform(ref, trigger, order, **data)
        self._move_followers(receipt.workflow_id)
        return receipt

    def _move_followers(self, job_id: UUID) -> None:
        """Apply follow-ups on its workers and descendants, one generation a turn. Celery workers apply the rest."""
        drain = Drain(self.client.runtime)
        for _ in range(DEEPEST + 2):
            with transaction(self.client.runtime.database) as connection:
                partitions = jobs.partitions_following(connection, job_id)
            for partition in partitions:
                drain.partition(partition)
            if not partitions:
                return

    def _row(self, job_id: UUID) -> dict[str, Any]:
        with transaction(self.client.runtime.database) as connection:
            held = jobs.workers(connection, job_id=job_id)
            return dict(jobs.job(connection, job_id)) | {"workers": [dict(each) for each in held]}


def _waits(connection: Connection, job: Mapping[str, Any]) -> str:
    """What a job waits for that could not be allocated its workers."""
    if spent := limits.refusing_job(connection, job["id"]):
        look = offered("limit", "show", *spent.split(" ", 1), project=job["project"])
        return f"the limit on {spent} has no room: {look}; allocation is retried automatically"
    return f"too few idle workers: {job['worker_count']} needed; allocation is retried automatically"


def _ended(job: dict[str, Any]) -> dict[str, Any]:
    if job["status"] not in JOB.terminal:
        raise BadInput(f"job {job['entity_id']} is {job['status']}: only one that has ended is done again")
    return job


def _depth(requested: int | None, above: Mapping[str, Any] | None) -> int:
    if above is None:
        return requested or 0
    due = int(above["depth"]) + 1
    if requested not in (None, due):
        raise BadInput(f"depth must be {due}, one more than its parent's; got {requested}")
    if due > DEEPEST:
        raise BadInput(f"jobs can be nested at most {DEEPEST} deep; its parent is at depth {due - 1} already")
    return due
