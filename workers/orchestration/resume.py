"""Resumes an ended run: a new run of its plan, which carries over the completed workstreams."""

from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.connection import transaction
from interlock.db.core import instances
from interlock.db.core.instances import InstanceRow
from interlock.db.orchestration import plans
from interlock.workers.effects import plan_files
from interlock.workers.effects.plan_files import Patches
from interlock.workers.orchestration.submission import Run, Submission, deliver
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import Refused
from interlock.workflows.input.arguments import door
from interlock.workflows.plan.plan import Plan

RESUMABLE = ("failed", "canceled")


class NothingToResume(Refused):
    """The run has not ended, has succeeded, or was created without a plan. Watch it, or run its plan anew."""


@door
def resume(runtime: Runtime, ref: str, *, by: str, run_name: str | None = None) -> Run:
    """Run again what a failed or canceled run did not complete. The new run is linked to it by `retry_of`.

    Completed workstreams are carried over: in the new run they are skipped and empty, and nothing waits for them. Any
    other workstream is repeated as a whole, because its changes are in its archived branch, not in the base branch.

    Args:
        runtime: whose database.
        ref: the run's name or UUID.
        by: who resumes it.
        run_name: of the new run; default: the plan's name with a suffix.

    Raises:
        UnknownInstance, AmbiguousInstance: as `db.core.instances.find`.
        NothingToResume: the run has not ended, has succeeded, or was created without a plan.
        AlreadyExists, BadInput: as `submit`.
    """
    return deliver(runtime, resubmission(runtime, ref, project=runtime.settings.project, by=by), run_name)


def resubmission(runtime: Runtime, ref: str | UUID, *, project: str, by: str, proof: str | None = None) -> Submission:
    """The material of a new run that resumes a run.

    Args:
        runtime, ref, by: see `resume`.
        project: in which the run is looked up.
        proof: see `Submission`.

    Raises:
        UnknownInstance, AmbiguousInstance, NothingToResume, BadInput: as `resume`.
    """
    with transaction(runtime.database) as connection:
        found = _submitted(connection, instances.find(connection, ref, project, "run"), by, proof)
    runtime.blocking(lambda: plan_files.require_repository(found.plan, found.directory))
    return found


def _submitted(connection: Connection, run: InstanceRow, by: str, proof: str | None) -> Submission:
    """The submission of the new run: the old run's plan, with the instances it retries or carries over."""
    kept = plans.of_run(connection, run["id"])
    if kept is None:
        raise NothingToResume(f"run {run['entity_id']} was created without a plan, so it cannot be resumed")
    if run["current_state"] not in RESUMABLE:
        raise NothingToResume(
            f"run {run['entity_id']} is {run['current_state']}; only one that failed or was canceled can be resumed"
        )
    workstreams, tasks = plans.workstreams_of(connection, run["id"]), plans.tasks_of(connection, run["id"])
    carried = {each["name"]: done for each in workstreams if (done := _completed(each))}
    return Submission(
        plan=Plan.model_validate(kept["body"]),
        directory=Path(kept["directory"]),
        project=run["project"],
        by=by,
        priority=run["context"].get("priority", 0),
        patches=Patches({each["name"]: each["patch_id"] for each in tasks if each["patch_id"]}, {}),
        before={"": run["id"]} | {each["name"]: each["id"] for each in (*workstreams, *tasks)},
        carried=carried,
        carried_tasks=plans.tasks_by_name(connection, carried.values()),
        proof=proof,
    )


def _completed(workstream: RowMapping) -> UUID | None:
    """The completed workstream that this one is, or stands for."""
    workstream_id: Any = workstream["id"] if workstream["state"] == "completed" else workstream["carried_from"]
    return UUID(str(workstream_id)) if workstream_id else None
