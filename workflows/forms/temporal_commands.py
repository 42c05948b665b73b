"""What a workflow of the Temporal form asks Temporal for: activities, child workflows, signals. Needs `temporalio`."""

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, FailureError, is_cancelled_exception

from interlock.workflows.effects import TIMEOUT_SECONDS, declared
from interlock.workflows.forms.parts import called
from interlock.workflows.forms.temporal_values import (
    FactsFound,
    FactsWanted,
    LinkChange,
    TemporalEffect,
    TemporalFiring,
    TemporalStart,
)
from interlock.workflows.machines.delivery.approval import APPROVAL

FACTS, RELINK = "facts", "relink"  # activities that the host gives, if the definition needs them
FACTS_TIMEOUT = timedelta(seconds=60)
ATTEMPTS = 8


async def look_up(wanted: FactsWanted) -> FactsFound:
    """Ask the host for facts; it is asked again until it answers."""
    found: FactsFound = await workflow.execute_activity(
        FACTS, wanted, result_type=FactsFound, start_to_close_timeout=FACTS_TIMEOUT
    )
    return found


async def carry_out(effect: TemporalEffect) -> tuple[str | None, dict[str, Any]]:
    """Carry out an effect.

    Returns:
        The trigger that tells its outcome, or None, and that trigger's data: what it returned, or why it failed.
    """
    wanted = effect.wanted
    own = declared().get(wanted.name)
    heartbeat = own.heartbeat_seconds if own else None
    try:
        data = await workflow.execute_activity(
            wanted.name,
            wanted,
            start_to_close_timeout=timedelta(seconds=own.timeout_seconds if own else TIMEOUT_SECONDS),
            heartbeat_timeout=timedelta(seconds=heartbeat) if heartbeat else None,
            retry_policy=RetryPolicy(maximum_attempts=own.max_attempts(ATTEMPTS) if own else ATTEMPTS),
        )
    except ActivityError as failed:
        if is_cancelled_exception(failed):  # its instance has moved on
            return None, {}
        return effect.failed, {"reason": str(failed.cause or failed)}
    return effect.done, data or {}


async def granted_by(child: str, start: TemporalStart) -> bool:
    """Let an approval be decided, by a child workflow; returns whether it was granted."""
    ended: dict[str, Any] = await workflow.execute_child_workflow(
        called(APPROVAL), start, id=child, result_type=dict[str, Any]
    )
    return bool(ended["settled"] == "granted")


async def tell(workflow_id: str, firing: TemporalFiring) -> None:
    """Fire a trigger on a linked instance; one that has ended is not told."""
    try:
        await workflow.get_external_workflow_handle(workflow_id).signal("follow_up", firing)
    except FailureError as failed:
        workflow.logger.warning("%s was not told %s: %s", workflow_id, firing.trigger, failed)


async def relink(change: LinkChange) -> None:
    """Have the host change a link."""
    await workflow.execute_activity(RELINK, change, start_to_close_timeout=FACTS_TIMEOUT)
