"""Receipts: what a caller gets for an accepted trigger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping

from interlock.workflows.errors import InterlockError, Refused
from interlock.workflows.outcomes import FINISHED, VERSION_CONFLICT

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


class VersionConflict(Refused):
    """A trigger's instance was not at its `if_version`, so it was rejected. Read the instance again and decide anew.

    Attributes:
        version, state: those of the instance when the trigger was rejected.
        receipts: of all triggers that were waited for, in the order given; others of them may be applied.
    """

    def __init__(self, refused: Receipt, receipts: Sequence[Receipt]) -> None:
        reason = refused.result or {}
        super().__init__(f"{refused.trigger} ({refused.request_id}) was rejected: {reason['message']}")
        self.version: int = reason["version"]
        self.state: str = reason["state"]
        self.receipts = receipts


def without_conflict(receipts: list[Receipt]) -> list[Receipt]:
    """The same receipts.

    Raises:
        VersionConflict: of the first one that was rejected for its `if_version`.
    """
    for each in receipts:
        if each.result and each.result.get("code") == VERSION_CONFLICT:
            raise VersionConflict(each, receipts)
    return receipts
