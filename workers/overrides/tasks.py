"""Overrides of tasks: complete, fail, unblock, and leave out (RECOVER-7, RECOVER-14).

A task of a run has dependents, dependencies, and gates that judge it. What an override changes on these is reported in
`notes`. Then the run's counts are renewed, and its scheduler looks at all instances that have not ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

from sqlalchemy import RowMapping

from interlock.db.operations import overrides
from interlock.workers.overrides.target_states import target_state
from interlock.workers.overrides.transaction import CannotOverride, Done, Operation, Order, name_of, operating
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from interlock.workflows.input.arguments import door
from interlock.workflows.output.suggestions import offered
from interlock.workflows.scheduling.next_trigger import ENDED

BEGUN = ("running", "validating")


@dataclass(frozen=True, slots=True)
class TaskWithContext:
    """A task's instance and its surroundings (`db.operations.overrides.task`), as read."""

    instance: RowMapping
    around: RowMapping


@door
def complete_task(runtime: Runtime, ref: str, order: Order, *, output: Path | None = None) -> Done:
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
    with operating(runtime, order) as operation:
        instance = operation.find(ref)
        to = target_state("complete-task", instance)
        if seen := _seen(operation, instance):
            require_no_patch(seen)
            operation.done.notes += [
                f"{name} goes on without it"
                for name in overrides.waive_task(operation.connection, seen.around["task_id"], waited=False)
            ]
        _end(operation, instance, seen, to, metadata)
        if seen:
            recount(operation, seen.around)
    return operation.done


@door
def fail_task(runtime: Runtime, ref: str, order: Order) -> Done:
    """Fail a task even if it has retries left; its worker stops the command. Raises as `complete_task`."""
    with operating(runtime, order) as operation:
        instance = operation.find(ref)
        to = target_state("fail-task", instance)
        if seen := _seen(operation, instance):
            require_no_patch(seen)
        _end(operation, instance, seen, to, {})
    return operation.done


@door
def unblock_task(runtime: Runtime, ref: str, order: Order) -> Done:
    """Let a task go on without what it still waits for, which was verified by hand (RECOVER-9).

    Raises:
        CannotOverride: it waits for nothing, or has begun or ended.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    with operating(runtime, order) as operation:
        seen = require_of_a_run(operation, operation.find(ref, "task"))
        instance, around = seen.instance, seen.around
        if around["state"] not in ("blocked", "pending") or (around["state"] == "pending" and not around["unmet"]):
            waits = "waits for its workstream only" if around["state"] == "pending" else f"is {around['state']}"
            raise CannotOverride(
                f"{name_of(instance)} {waits}; only a task that waits for other tasks or gates can be unblocked"
            )
        for name in overrides.waive_unmet(operation.connection, around["task_id"]):
            operation.done.notes.append(f"it waits no longer for {name}")
        hold_and_let_go(operation, instance)
        recount(operation, around)
    return operation.done


def hold_and_let_go(operation: Operation, task: RowMapping) -> None:
    """Bring a waiting task to `pending` as the operator; one that is pending already is first moved to `blocked`."""
    if task["current_state"] == "pending":
        operation.walk(task, "blocked")
    operation.walk(operation.again(task), "pending")


def leave_out(operation: Operation, seen: TaskWithContext) -> None:
    """Cancel a task, and let its dependents go on without it."""
    require_no_patch(seen)
    task_id = seen.around["task_id"]
    names = overrides.waive_task(operation.connection, task_id, waited=True)
    operation.done.notes += [f"{name} goes on without it" for name in names]
    overrides.leave_out(operation.connection, task_id)
    operation.walk(seen.instance, target_state("skip-step", seen.instance), {"user_cancelled": {"skipped": True}})
    recount(operation, seen.around)


def require_of_a_run(operation: Operation, instance: RowMapping) -> TaskWithContext:
    """A task, with its run's scheduler up to date.

    Raises:
        CannotOverride: it belongs to no run (the legacy lineage).
    """
    if (seen := _seen(operation, instance)) is None:
        raise CannotOverride(
            f"{name_of(instance)} has the legacy version {instance['definition_version']}, which has no scheduler"
        )
    return seen


def recount(operation: Operation, around: RowMapping) -> None:
    """Renew the run's counts, and have the scheduler's next pass look at all its unended instances."""
    overrides.recount(operation.connection, around["run_id"])


def _seen(operation: Operation, instance: RowMapping) -> TaskWithContext | None:
    """A task with its surroundings; None for steps and tasks of the legacy lineage, which have no scheduler."""
    if instance["workflow_type"] != "task":
        return None
    if (around := overrides.task(operation.connection, instance["id"])) is None:
        return None
    instance = operation.enter(around["run_id"], instance)
    again = overrides.task(operation.connection, instance["id"])
    assert again
    return TaskWithContext(instance, again)


def _end(
    operation: Operation, instance: RowMapping, seen: TaskWithContext | None, to: str, metadata: Mapping[str, Any]
) -> None:
    if seen is None:
        operation.walk(instance, to, {"success": metadata})
        return
    worker = _require_begun(seen)
    started = {"worker_id": str(worker), "capabilities": seen.instance["context"].get("required_capabilities", [])}
    operation.walk(seen.instance, to, {"worker_started": started, "validation_passed": metadata})


def _require_begun(seen: TaskWithContext) -> Any:
    """The worker that had the task last. Refuses a task never begun: its machine has no transition to an end."""
    around = seen.around
    if around["state"] in (*BEGUN, *ENDED["task"]):
        return around["last_worker"]
    if around["last_worker"] is None:
        raise CannotOverride(
            f"{name_of(seen.instance)} is {around['state']} and was never started: skip it (override skip-step) or "
            "cancel it (interlock fire REF user_cancelled --by WHO)"
        )
    if around["unmet"]:
        raise CannotOverride(
            f"{name_of(seen.instance)} waits for {around['unmet']} others; unblock it first (override unblock-task)"
        )
    return around["last_worker"]


def require_no_patch(seen: TaskWithContext) -> None:
    """Refuse to move a task whose patch is being processed: the patch would end for a task that has ended.

    Raises:
        CannotOverride: names the patch.
    """
    if patch := seen.around["open_patch"]:
        raise CannotOverride(
            f"the patch {patch} of {name_of(seen.instance)} is being processed: wait until that ends "
            f"({offered('patch', 'show', patch, project=seen.instance['project'])})"
        )


def _verified(output: Path) -> dict[str, Any]:
    """The record of a task's output file: path, SHA-256 and size."""
    try:
        with output.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
            return {"path": str(output.absolute()), "sha256": digest, "bytes": file.tell()}
    except OSError as error:
        raise BadInput(f"--verify-output {output}: {error.strerror}; name a file that the task wrote") from error
