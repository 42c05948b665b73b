"""Receipts: what a caller gets for an accepted trigger."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping

from interlock.workflows.errors import InterlockError
from interlock.workflows.outcomes import FINISHED

SETTLED = FINISHED | {"waiting"}  # these change no more, unless somebody acts on them


class NotSettled(InterlockError):
    """The trigger is accepted but was not applied in time. It will be applied; `interlock show` shows its status."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """An accepted trigger.

    Attributes:
        request_id: names it, for `wait` and for firing it again.
        status: `scheduled`, `pending`, `waiting`, `applied`, `rejected`, `superseded` or `dead`.
        workflow_id: the instance it was fired on.
        trigger: the trigger's name.
        replayed: whether this `request_id` had been accepted before, with the same body; nothing new was accepted.
        result: the outcome, once there is one: the states it moved from and to, or the reason of the refusal.
        error: the last error, while it is retried or dead.
    """

    request_id: str
    status: str
    workflow_id: UUID
    trigger: str
    replayed: bool = False
    result: Mapping[str, Any] | None = None
    error: str | None = None


def receipt(found: Mapping[str, Any] | RowMapping, *, replayed: bool = False) -> Receipt:
    """A `trigger_requests` row as a caller sees it."""
    return Receipt(
        found["request_id"],
        found["status"],
        found["workflow_id"],
        found["trigger"],
        replayed,
        found.get("result"),
        found.get("error"),
    )
