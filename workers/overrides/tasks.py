"""Overrides of tasks: complete, fail, unblock, and leave out (SSOT 5.2.1; seed 000, recovery 2).

A task of a run has others around it: who waits for it, what it waits for, gates that judge it. What an override makes
of these it says in `notes`; then the run is counted again, and the scheduler looks at all of it that has not ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

from sqlalchemy import RowMapping

from db import overrides
from workers.overrides.goals import goal
from workers.overrides.operation import CannotOverride, Done, Operation, Order, name_of, operating
from workers.runtime import Runtime
from workflows.errors import BadInput

ENDED = ("completed", "failed", "cancelled")
BEGUN = ("running", "validating")


@dataclass(frozen=True, slots=True)
class Seen:
    """A task as it stands: its instance, and its surroundings (`db.overrides.task`)."""

    instance: RowMapping
    around: RowMapping


def complete_task(runtime: Runtime, ref: str, order: Order, *, output: Path | None = None) -> Done:
    """Say that a task did its work, whatever it reported: its gates are not waited for (SSOT 5.2.1).

    Args:
        runtime: whose database.
        ref: the task, or a step of seed 000.
        order: the operator, and why.
        output: a file that the task wrote; its SHA-256 is kept with the event.

    Raises:
        CannotOverride: it has ended, was never begun, or its patch is on its way; nothing was changed.
        BadInput: there is no such file.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    says = {"output": _verified(output)} if output else {}
    with operating(runtime, order) as operation:
        instance = operation.find(ref)
        to = goal("complete-task", instance)
        if seen := _seen(operation, instance):
            require_no_patch(seen)
            operation.done.notes += [
                f"{name} goes on without it"
                for name in overrides.waive_task(operation.connection, seen.around["task_id"], waited=False)
            ]
        _end(operation, instance, seen, to, says)
        if seen:
            recount(operation, seen.around)
    return operation.done


def fail_task(runtime: Runtime, ref: str, order: Order) -> Done:
    """Give a task up, whatever retries it has left; a worker that has it is told to stop. Raises as `complete_task`."""
    with operating(runtime, order) as operation:
        instance = operation.find(ref)
        to = goal("fail-task", instance)
        if seen := _seen(operation, instance):
            require_no_patch(seen)
        _end(operation, instance, seen, to, {})
    return operation.done


def unblock_task(runtime: Runtime, ref: str, order: Order) -> Done:
    """Let a task go on without what it still waits for (SSOT 5.2.1: verified by hand).

    Raises:
        CannotOverride: it waits for nothing, or has begun or ended.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    with operating(runtime, order) as operation:
        seen = require_of_a_run(operation, operation.find(ref, "task"))
        instance, around = seen.instance, seen.around
        if around["state"] not in ("blocked", "pending") or (around["state"] == "pending" and not around["unmet"]):
            waits = "waits for its workstream only" if around["state"] == "pending" else f"is {around['state']}"
            raise CannotOverride(f"{name_of(instance)} {waits}; only one that waits for others can be unblocked")
        for name in overrides.waive_unmet(operation.connection, around["task_id"]):
            operation.done.notes.append(f"it waits no longer for {name}")
        hold_and_let_go(operation, instance)
        recount(operation, around)
    return operation.done


def hold_and_let_go(operation: Operation, task: RowMapping) -> None:
    """Bring a task that waits to `pending` by the operator's hand: one that is there is held for an instant."""
    if task["current_state"] == "pending":
        operation.walk(task, "blocked")
    operation.walk(operation.again(task), "pending")


def leave_out(operation: Operation, seen: Seen) -> None:
    """End a task, and let whatever waits for it go on without it."""
    require_no_patch(seen)
    task_id = seen.around["task_id"]
    names = overrides.waive_task(operation.connection, task_id, waited=True)
    operation.done.notes += [f"{name} goes on without it" for name in names]
    overrides.leave_out(operation.connection, task_id)
    operation.walk(seen.instance, goal("skip-step", seen.instance), {"user_cancelled": {"skipped": True}})
    recount(operation, seen.around)


def require_of_a_run(operation: Operation, instance: RowMapping) -> Seen:
    """A task with its run's scheduler up to date.

    Raises:
        CannotOverride: it belongs to no run (the older lineage).
    """
    if (seen := _seen(operation, instance)) is None:
        raise CannotOverride(f"{name_of(instance)} is a {instance['definition_version']}, which has no scheduler")
    return seen


def recount(operation: Operation, around: RowMapping) -> None:
    """Count the run again, and hint at its scheduler once this is committed."""
    overrides.recount(operation.connection, around["run_id"])


def _seen(operation: Operation, instance: RowMapping) -> Seen | None:
    """None of what has no scheduler: a step, and tasks of the older lineage."""
    if instance["workflow_type"] != "task":
        return None
    if (around := overrides.task(operation.connection, instance["id"])) is None:
        return None
    instance = operation.enter(around["run_id"], instance)
    again = overrides.task(operation.connection, instance["id"])
    assert again
    return Seen(instance, again)


def _end(operation: Operation, instance: RowMapping, seen: Seen | None, to: str, says: Mapping[str, Any]) -> None:
    if seen is None:
        operation.walk(instance, to, {"success": says})
        return
    worker = _require_begun(seen)
    started = {"worker_id": str(worker), "capabilities": seen.instance["context"].get("required_capabilities", [])}
    operation.walk(seen.instance, to, {"worker_started": started, "validation_passed": says})


def _require_begun(seen: Seen) -> Any:
    """The worker that had the task last: the machine has no way to an end for what nobody ever began."""
    around = seen.around
    if around["state"] in (*BEGUN, *ENDED):
        return around["last_worker"]
    if around["last_worker"] is None:
        raise CannotOverride(
            f"{name_of(seen.instance)} is {around['state']} and was never begun: leave it out (override skip-step) or "
            "cancel it (interlock fire REF user_cancelled --by WHO)"
        )
    if around["unmet"]:
        raise CannotOverride(
            f"{name_of(seen.instance)} waits for {around['unmet']} others; let it go first (override unblock-task)"
        )
    return around["last_worker"]


def require_no_patch(seen: Seen) -> None:
    """Refuse to move a task whose patch is on its way: the patch would end for a task that has ended.

    Raises:
        CannotOverride: names the patch.
    """
    if patch := seen.around["open_patch"]:
        raise CannotOverride(
            f"the patch {patch} of {name_of(seen.instance)} is on its way: let it end first "
            f"(interlock patch show {patch})"
        )


def _verified(output: Path) -> dict[str, Any]:
    """What is kept of a task's output."""
    try:
        with output.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
            return {"path": str(output.absolute()), "sha256": digest, "bytes": file.tell()}
    except OSError as error:
        raise BadInput(f"--verify-output {output}: {error.strerror}; name a file that the task wrote") from error
