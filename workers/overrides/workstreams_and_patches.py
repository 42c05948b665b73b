"""Overrides of workstreams and patches (RECOVER-7)."""

from uuid import UUID

from interlock.db.core.instances import InstanceRow
from interlock.db.operations import overrides
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
from interlock.workflows.input.arguments import door
from interlock.workflows.output.counts import number_of


@door
@again_if_collided
def fail_workstream(runtime: Runtime, ref: str, order: OverrideOrder) -> Done:
    """Fail a workstream: its tasks are cancelled, and its work is archived (RECOVER-8).

    Raises:
        CannotOverride: it has ended; nothing was changed.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    with operating(runtime, order, "fail-workstream", ref) as operation:
        instance, _ = _entered(operation, ref, "workstream")
        operation.walk(instance, target_state("fail-workstream", instance))
    return operation.done


@door
@again_if_collided
def validate_workstream(runtime: Runtime, ref: str, order: OverrideOrder) -> Done:
    """Have a workstream validated whose tasks have all ended, even if not all of them completed (RECOVER-8).

    Its gates that have not run yet do, and it lands. To inspect a workstream first, pause it: otherwise it fails as
    soon as its last task ends without completing.

    Raises:
        CannotOverride: it is being validated, has ended, or has unended tasks or uncommitted patches.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    with operating(runtime, order, "validate-workstream", ref) as operation:
        instance, run = _entered(operation, ref, "workstream")
        if run:
            _require_validatable(operation, instance)
        operation.walk(instance, target_state("validate-workstream", instance))
    return operation.done


@door
@again_if_collided
def drop_patch(runtime: Runtime, ref: str, order: OverrideOrder) -> Done:
    """Discard a patch that is quarantined, or could not be applied (PATCH-7). Raises as `fail_workstream`."""
    with operating(runtime, order, "drop-patch", ref) as operation:
        instance, _ = _entered(operation, ref, "patch_ledger")
        operation.fire(instance, "drop", target_state("drop-patch", instance), {"authorized_by": order.by})
    return operation.done


def _require_validatable(operation: Operation, workstream: InstanceRow) -> None:
    name = name_of(workstream)
    if workstream["current_state"] in ("planned", "blocked"):
        raise CannotOverride(
            f"{name} is {workstream['current_state']}: no task of it has run, so there is nothing to validate"
        )
    found = overrides.workstream(operation.connection, workstream["id"])
    if found and found["unended"]:
        unended = number_of(found["unended"], "unended task")
        raise CannotOverride(f"{name} has {unended}: complete-task, fail-task or skip-step them first")
    if found and found["patches"]:
        raise CannotOverride(
            f"patches of {name} are not committed ({', '.join(found['patches'][:5])}): it cannot be merged; "
            "end it with fail-workstream, and run its plan again"
        )


def _entered(operation: Operation, ref: str, type_: str) -> tuple[InstanceRow, UUID | None]:
    """An instance, and its run with the scheduler up to date; None for the legacy lineage, which has no scheduler."""
    instance = operation.find(ref, type_)
    try:
        run = UUID(str(instance["context"]["run_id"]))
    except (KeyError, ValueError):
        return instance, None
    return operation.enter(run, instance), run
