"""Overrides of tasks: complete, fail, unblock, and leave out (RECOVER-7, RECOVER-14).

A task of a run has dependents, dependencies, and gates that judge it. What an override changes on these is reported in
`notes`. Then the run's counts are renewed, and its scheduler looks at all instances that have not ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

from interlock.db.core.instances import InstanceRow
from interlock.db.operations import overrides
from interlock.db.operations.overrides import OverriddenTask
from interlock.workers.overrides.target_states import target_state
from interlock.workers.overrides.transaction import (
    CannotOverride,
    Done,
    Operation,
    OverrideOrder,
    again_if_collided,
    name_of,
    operating,
)
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from interlock.workflows.input.arguments import door
from interlock.workflows.output.suggestions import offered
from interlock.workflows.scheduling.next_trigger import ENDED

BEGUN = ("running", "validating")


@dataclass(frozen=True, slots=True)
class TaskDetails:
    """A task's instance and its surroundings (`db.operations.overrides.task`), as read."""

    instance: InstanceRow
    row: OverriddenTask


@door
@again_if_collided
def complete_task(runtime: Runtime, ref: str, order: OverrideOrder, *, output: Path | None = None) -> Done:
    """Declare a task's work done, whatever it reported, without waiting for its gates (RECOVER-7).

    Args:
        runtime: whose database.
        ref: the task, or a step 0.1.0.
        order: the operator, and why.
        output: a file that the task wrote; its SHA-256 is kept with the event.

    Raises:
        CannotOverride: it has ended, was never begun, or its patch is being processed; nothing was changed.
        BadInput: there is no such file.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    metadata = {"output": _verified(output)} if output else {}
    with operating(runtime, order, "complete-task", ref) as operation:
        instance = operation.find(ref)
        to = target_state("complete-task", instance)
        if details := _task_details(operation, instance):
            require_no_patch(details)
            operation.done.notes += [
                f"{name} goes on without it"
                for name in overrides.waive_task(operation.connection, details.row["task_id"], waited=False)
            ]
        _end(operation, instance, details, to, metadata)
        if details:
            overrides.recount(operation.connection, details.row["run_id"])
    return operation.done


@door
@again_if_collided
def fail_task(runtime: Runtime, ref: str, order: OverrideOrder) -> Done:
    """Fail a task even if it has retries left; its worker stops the command. Raises as `complete_task`."""
    with operating(runtime, order, "fail-task", ref) as operation:
        instance = operation.find(ref)
        to = target_state("fail-task", instance)
        if details := _task_details(operation, instance):
            require_no_patch(details)
        _end(operation, instance, details, to, {})
    return operation.done


@door
@again_if_collided
def unblock_task(runtime: Runtime, ref: str, order: OverrideOrder) -> Done:
    """Let a task go on without what it still waits for, which was verified by hand (RECOVER-9).

    Raises:
        CannotOverride: it waits for nothing, or has begun or ended.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    with operating(runtime, order, "unblock-task", ref) as operation:
        details = require_of_a_run(operation, operation.find(ref, "task"))
        instance, row = details.instance, details.row
        if row["state"] not in ("blocked", "pending") or (row["state"] == "pending" and not row["unmet"]):
            waits = "waits for its workstream only" if row["state"] == "pending" else f"is {row['state']}"
            raise CannotOverride(
                f"{name_of(instance)} {waits}; only a task that waits for other tasks or gates can be unblocked"
            )
        for name in overrides.waive_unmet(operation.connection, row["task_id"]):
            operation.done.notes.append(f"it waits no longer for {name}")
        hold_and_let_go(operation, instance)
        overrides.recount(operation.connection, row["run_id"])
    return operation.done


def hold_and_let_go(operation: Operation, task: InstanceRow) -> None:
    """Bring a waiting task to `pending` as the operator; one that is pending already is first moved to `blocked`."""
    if task["current_state"] == "pending":
        operation.walk(task, "blocked")
    operation.walk(operation.again(task), "pending")


def leave_out(operation: Operation, details: TaskDetails) -> None:
    """Cancel a task, and let its dependents go on without it."""
    require_no_patch(details)
    task_id = details.row["task_id"]
    names = overrides.waive_task(operation.connection, task_id, waited=True)
    operation.done.notes += [f"{name} goes on without it" for name in names]
    overrides.leave_out(operation.connection, task_id)
    operation.walk(details.instance, target_state("skip-step", details.instance), {"user_cancelled": {"skipped": True}})
    overrides.recount(operation.connection, details.row["run_id"])


def require_of_a_run(operation: Operation, instance: InstanceRow) -> TaskDetails:
    """A task, with its run's scheduler up to date.

    Raises:
        CannotOverride: it belongs to no run (the legacy lineage).
    """
    if (details := _task_details(operation, instance)) is None:
        raise CannotOverride(
            f"{name_of(instance)} is of the legacy version {instance['definition_version']}, whose tasks no scheduler "
            "moves: fire its triggers yourself, with `interlock fire`"
        )
    return details


def _task_details(operation: Operation, instance: InstanceRow) -> TaskDetails | None:
    """A task with its surroundings; None for steps and tasks of the legacy lineage, which have no scheduler."""
    if instance["workflow_type"] != "task":
        return None
    if (row := overrides.task(operation.connection, instance["id"])) is None:
        return None
    instance = operation.enter(row["run_id"], instance)
    again = overrides.task(operation.connection, instance["id"])
    assert again
    return TaskDetails(instance, again)


def _end(
    operation: Operation, instance: InstanceRow, details: TaskDetails | None, to: str, metadata: Mapping[str, Any]
) -> None:
    if details is None:
        operation.walk(instance, to, {"success": metadata})
        return
    worker = _require_begun(details)
    started = {"worker_id": str(worker), "capabilities": details.instance["context"].get("required_capabilities", [])}
    operation.walk(details.instance, to, {"worker_started": started, "validation_passed": metadata})


def _require_begun(details: TaskDetails) -> Any:
    """The worker that had the task last. Refuses a task never begun: its machine has no transition to an end."""
    row = details.row
    if row["state"] in (*BEGUN, *ENDED["task"]):
        return row["last_worker"]
    if row["last_worker"] is None:
        raise CannotOverride(
            f"{name_of(details.instance)} is {row['state']} and was never started: skip it (override skip-step) or "
            "cancel it (interlock fire REF user_cancelled --by WHO)"
        )
    if row["unmet"]:
        raise CannotOverride(
            f"{name_of(details.instance)} waits for {row['unmet']} others; unblock it first (override unblock-task)"
        )
    return row["last_worker"]


def require_no_patch(details: TaskDetails) -> None:
    """Refuse to move a task whose patch is being processed: the patch would end for a task that has ended.

    Raises:
        CannotOverride: names the patch.
    """
    if patch := details.row["open_patch"]:
        raise CannotOverride(
            f"the patch {patch} of {name_of(details.instance)} is being processed: wait until that ends "
            f"({offered('patch', 'show', patch, project=details.instance['project'])})"
        )


def require_no_open_patch(operation: Operation, task: InstanceRow) -> None:
    """As `require_no_patch`, of a task that was only found by its links."""
    details = overrides.task(operation.connection, task["id"])
    assert details
    require_no_patch(TaskDetails(task, details))


def _verified(output: Path) -> dict[str, Any]:
    """The record of a task's output file: path, SHA-256 and size."""
    try:
        with output.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
            return {"path": str(output.absolute()), "sha256": digest, "bytes": file.tell()}
    except OSError as error:
        raise BadInput(f"--verify-output {output}: {error.strerror}; name a file that the task wrote") from error
