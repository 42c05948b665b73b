"""Replaces ended tasks by new ones: `reset-task`, and leaving out a failed step (RECOVER-4, RECOVER-10)."""

from interlock.db.core import instances
from interlock.db.core.instances import InstanceRow
from interlock.db.operations import overrides
from interlock.workers.overrides import tasks
from interlock.workers.overrides.target_states import target_state
from interlock.workers.overrides.task_replacement import SPENT, TaskReplacement, require_takes_tasks
from interlock.workers.overrides.tasks import TaskDetails, hold_and_let_go, leave_out, require_of_a_run
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
from interlock.workflows.input.arguments import door
from interlock.workflows.scheduling import next_trigger


@door
@again_if_collided
def reset_task(runtime: Runtime, ref: str, order: OverrideOrder, *, clear_retry_count: bool = False) -> Done:
    """Restart a task from the beginning, as a new task in its place. A task that has not ended is cancelled first.

    Args:
        runtime: whose database.
        ref: the task; a failed step of lineage 0.1.0 is retried by its own machine instead.
        order: the operator, and why.
        clear_retry_count: give the new task all retries; otherwise, the retries used up stay used up.

    Raises:
        CannotOverride: it is completed, was reset before, or its workstream is validating or has ended; nothing was
            changed.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    with operating(runtime, order, "reset-task", ref) as operation:
        instance = operation.find(ref, "task", "step")
        if instance["workflow_type"] == "step":
            operation.walk(instance, target_state("reset-task", instance))
        else:
            task = require_of_a_run(operation, instance)
            made = _replace(operation, task, keep_count=not clear_retry_count)
            hold_and_let_go(operation, made)
            overrides.recount(operation.connection, task.row["run_id"])
    return operation.done


@door
@again_if_collided
def skip_step(runtime: Runtime, ref: str, order: OverrideOrder) -> Done:
    """Leave a step (a task) out: it is cancelled, and its dependents go on without it. Raises as `reset_task`.

    A failed task is replaced, and its replacement is left out at once. A step 0.1.0 moves to success: its machine has
    no other way.
    """
    with operating(runtime, order, "skip-step", ref) as operation:
        instance = operation.find(ref, "task", "step")
        if instance["workflow_type"] == "step":
            operation.walk(instance, target_state("skip-step", instance), {"success": {"skipped": True}})
        else:
            task = require_of_a_run(operation, instance)
            if task.row["state"] in SPENT:
                made = _replace(operation, task, keep_count=False)
                details = overrides.task(operation.connection, made["id"])
                assert details
                task = TaskDetails(made, details)
            leave_out(operation, task)
    return operation.done


def _replace(operation: Operation, task: TaskDetails, *, keep_count: bool) -> InstanceRow:
    """The new task in this one's place."""
    _require_open(task)
    task_id = task.row["task_id"]
    replacement = TaskReplacement(operation, task.row["run_id"])
    replacement.gather(task_id)
    replacement.run_gates_again()
    replacement.make({task_id: task.row["retry_count"]} if keep_count else {})
    if task.row["state"] not in next_trigger.ENDED["task"]:
        operation.walk(task.instance, "cancelled", {"user_cancelled": {"reset": True}})
    return instances.by_id(operation.connection, replacement.made[task_id])


def _require_open(task: TaskDetails) -> None:
    details, name = task.row, name_of(task.instance)
    tasks.require_no_patch(task)
    if details["left_out"]:
        raise CannotOverride(
            f"{name} was reset before: {details['retried_by']} replaces it"
            if details["retried_by"]
            else f"{name} was skipped"
        )
    if details["state"] == "completed":
        raise CannotOverride(f"{name} is completed, and other tasks have used its result; run the plan again instead")
    require_takes_tasks(name, details)
