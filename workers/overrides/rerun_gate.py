"""Runs a failed gate again by hand, as a new gate in its place: `interlock gate rerun` (GATE-7, RECOVER-10).

What was given up because of the gate is made anew with it, because a terminal state never changes.
"""

from interlock.db.core.instances import InstanceRow
from interlock.db.operations import overrides
from interlock.db.operations.overrides import OverriddenGate
from interlock.workers.overrides.task_replacement import TaskReplacement, require_unended
from interlock.workers.overrides.tasks import require_no_open_patch
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


@door
@again_if_collided
def rerun_gate(runtime: Runtime, ref: str, order: OverrideOrder) -> Done:
    """Run a failed gate again, once what was wrong outside is mended: the same command, as a new gate.

    Whatever names the gate names the new one. Tasks that were cancelled, or failed, because of it are made anew, except
    in a workstream that is validating, which takes no new tasks (WORKSTREAM-2).

    Args:
        runtime: whose database.
        ref: the gate.
        order: the operator, and why.

    Raises:
        CannotOverride: it has not failed, was run again before, or its workstream has ended; nothing was changed.
        NotAnOperator, UnknownInstance, AmbiguousInstance: nothing was changed.
    """
    with operating(runtime, order, "rerun-gate", ref) as operation:
        gate = _require_failed(operation, operation.find(ref, "test_gate"))
        replacement = TaskReplacement(operation, gate["run_id"], gates={gate["gate_id"]})
        replacement.gather(gate["gate_id"], misjudged=True)
        for old in replacement.olds.values():
            require_no_open_patch(operation, old)
        replacement.run_gates_again()
        replacement.make({})
        overrides.recount(operation.connection, gate["run_id"])
    return operation.done


def _require_failed(operation: Operation, instance: InstanceRow) -> OverriddenGate:
    """The gate, with its run's scheduler up to date, if it can be run again."""
    name = name_of(instance)
    if (found := overrides.gate(operation.connection, instance["id"])) is None:
        raise CannotOverride(f"{name} belongs to no run, so nothing waits for it; create another gate instead")
    operation.enter(found["run_id"], instance)
    gate = overrides.gate(operation.connection, instance["id"])
    assert gate
    if gate["retried_by"]:
        raise CannotOverride(f"{name} was run again before: {gate['retried_by']} replaces it")
    if gate["state"] == "PASSED":
        raise CannotOverride(f"{name} has passed, and others have relied on that; run the plan again instead")
    require_unended(name, gate)
    if gate["state"] != "FAILED":
        raise CannotOverride(f"{name} is {gate['state']}; only a gate that has failed can be run again")
    return gate
