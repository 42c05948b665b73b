"""Rows of the triggers that Interlock fires itself, for `requests.accept`."""

from collections.abc import Mapping
from typing import Any, Literal
from uuid import UUID

Origin = Literal["agent", "follow_up", "override", "timer"]


def internal(
    request_id: str,
    workflow_id: UUID,
    trigger: str,
    *,
    by: str,
    origin: Origin = "follow_up",
    version: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """The row of a trigger whose request_id alone tells a repetition: it is its own fingerprint.

    Args:
        request_id: the idempotency key.
        workflow_id, trigger, by: what is fired on which instance, in whose name.
        origin: what kind of cause it has.
        version: the version of the instance that it is bound to: if the instance has moved since, it is superseded.
        metadata: kept in the event.
        more: other columns that `requests.accept` writes: `delay_seconds`, `trace`.
    """
    return {
        "request_id": request_id,
        "fingerprint": request_id.encode().hex(),
        "workflow_id": workflow_id,
        "trigger": trigger,
        "triggered_by": by,
        "origin": origin,
        "bound_version": version,
        "metadata": metadata or {},
        **more,
    }
