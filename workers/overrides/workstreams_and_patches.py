"""Overrides of workstreams, patches and circuit breakers (SSOT 5.2.1, 5.3)."""

from uuid import UUID

from sqlalchemy import RowMapping

from db import breakers, overrides
from workers.overrides.goals import goal
from workers.overrides.operation import CannotOverride, Done, Operation, Order, name_of, operating
from workers.runtime import Runtime


def fail_workstream(runtime: Runtime, ref: str, order: Order) -> Done:
    """Give a workstream up: its tasks are cancelled, what it left is archived (SSOT 5.2.1).

    Raises:
        CannotOverride: it has ended; nothing was changed.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    with operating(runtime, order) as operation:
        instance = operation.find(ref, "workstream")
        if run := _run_of(instance["context"]):
            instance = operation.enter(run, instance)
        operation.walk(instance, goal("fail-workstream", instance))
    return operation.done


def validate_workstream(runtime: Runtime, ref: str, order: Order) -> Done:
    """Let a workstream whose tasks have all ended be validated, though not all of them completed (SSOT 5.3.1).

    Its gates at the end are run, and it lands. Pause a workstream that is to be looked at: one whose last task ends
    without completing fails at once.

    Raises:
        CannotOverride: it is validated already, has ended, or has tasks or patches that stand in the way.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    with operating(runtime, order) as operation:
        instance = operation.find(ref, "workstream")
        if run := _run_of(instance["context"]):
            instance = operation.enter(run, instance)
            _require_validatable(operation, instance)
        operation.walk(instance, goal("validate-workstream", instance))
    return operation.done


def drop_patch(runtime: Runtime, ref: str, order: Order) -> Done:
    """Discard a patch that is quarantined, or could not be applied (SSOT 2.5.4). Raises as `fail_workstream`."""
    with operating(runtime, order) as operation:
        instance = operation.find(ref, "patch_ledger")
        if run := _run_of(instance["context"]):
            instance = operation.enter(run, instance)
        operation.fire(instance, "drop", goal("drop-patch", instance), {"authorized_by": order.by})
    return operation.done


def reset_breaker(runtime: Runtime, ref: str | UUID, order: Order) -> Done:
    """Close a breaker (SSOT 5.3.3): by the machine's own way, so an open one is half-open for an instant.

    One that is closed forgets its failures, which is no move. Raises as `fail_workstream`.
    """
    with operating(runtime, order) as operation:
        instance = operation.find(ref, "circuit_breaker")
        closed = goal("reset-breaker", instance)
        if instance["current_state"] != closed:
            operation.walk(instance, closed)
        breakers.forget_failures(operation.connection, instance["id"])
    return operation.done


def _require_validatable(operation: Operation, workstream: RowMapping) -> None:
    name = name_of(workstream)
    if workstream["current_state"] in ("planned", "blocked"):
        raise CannotOverride(
            f"{name} is {workstream['current_state']}: nothing was done in it yet that could be validated"
        )
    found = overrides.workstream(operation.connection, workstream["id"])
    if found and found["unended"]:
        raise CannotOverride(
            f"{found['unended']} tasks of {name} have not ended: complete-task, fail-task or skip-step them first"
        )
    if found and found["patches"]:
        raise CannotOverride(
            f"patches of {name} are not committed ({', '.join(found['patches'][:5])}): it cannot land; "
            "fail-workstream it, and run its plan again"
        )


def _run_of(context: dict[str, object]) -> UUID | None:
    """The run whose scheduler has it; None of the older lineage."""
    try:
        return UUID(str(context["run_id"]))
    except (KeyError, ValueError):
        return None
