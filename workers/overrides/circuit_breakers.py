"""Closes a circuit breaker by hand (BREAKER-9)."""

from uuid import UUID

from interlock.db.orchestration import breakers
from interlock.db.orchestration.breakers import Breaker
from interlock.workers.circuit_breakers import known
from interlock.workers.overrides.target_states import target_state
from interlock.workers.overrides.transaction import Done, OverrideOrder, again_if_collided, operating
from interlock.workers.runtime import Runtime
from interlock.workflows.input.arguments import door


@door
def reset(runtime: Runtime, project: str, tool_id: str, order: OverrideOrder) -> Breaker:
    """Close a tool's breaker. Returns it, closed, with no failures.

    Args:
        runtime: this process's connections.
        project, tool_id: whose breaker.
        order: the operator, why, and at which version of the breaker.

    Raises:
        UnknownInstance: the tool has no breaker.
        NotAnOperator: `order.by` is not an operator.
        VersionConflict: it has moved on; nothing was changed.
    """
    reset_breaker(runtime, known(runtime, project, tool_id).breaker_id, order)
    return known(runtime, project, tool_id)


@door
@again_if_collided
def reset_breaker(runtime: Runtime, ref: str | UUID, order: OverrideOrder) -> Done:
    """Close a breaker through the machine's own transitions, so an open one is half-open for an instant.

    If it is closed already, only its failures are forgotten; that is not a move.
    Raises `NotAnOperator`, `UnknownInstance` or `AmbiguousInstance`.
    """
    with operating(runtime, order, "reset-breaker", ref) as operation:
        instance = operation.find(ref, "circuit_breaker")
        closed = target_state("reset-breaker", instance)
        if instance["current_state"] != closed:
            operation.walk(instance, closed)
        breakers.forget_failures(operation.connection, instance["id"])
    return operation.done
