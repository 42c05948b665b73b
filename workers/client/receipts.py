"""Receipts: what a caller gets for an accepted trigger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import RowMapping

from interlock.db.core.instances import InstanceRow
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
        result: the outcome, once there is one: the states it moved from and to, or the reason of the refusal. Of a
            trigger that waits: what holds it, an `approval` or a `brake`, and a `message`.
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
    """The instance was not at the `if_version` that was given, so nothing was done to it. Read it again, decide anew.

    Attributes:
        version, state: those of the instance when this was refused.
        receipts: of all triggers that were waited for, in the order given; others of them may be applied. Empty if no
            trigger was fired.
    """

    def __init__(self, message: str, *, version: int, state: str, receipts: Sequence[Receipt] = ()) -> None:
        super().__init__(message)
        self.version, self.state, self.receipts = version, state, receipts


def without_conflict(receipts: list[Receipt]) -> list[Receipt]:
    """The same receipts.

    Raises:
        VersionConflict: of the first one that was rejected for its `if_version`.
    """
    for each in receipts:
        if each.result and each.result.get("code") == VERSION_CONFLICT:
            raise VersionConflict(
                f"{each.trigger} ({each.request_id}) was rejected: {each.result['message']}",
                version=each.result["version"],
                state=each.result["state"],
                receipts=receipts,
            )
    return receipts


def require_version(instance: InstanceRow, wanted: int | None) -> None:
    """Raise `VersionConflict` if an instance is not at the version that its caller saw (EVENT-16); None: at any."""
    version, state = instance["version"], instance["current_state"]
    if wanted not in (None, version):
        name = f"{instance['workflow_type']} {instance['entity_id']}"
        message = f"{name} is at version {version}, in {state!r}, and not at version {wanted}. Look at it again"
        raise VersionConflict(f"{message}; nothing was changed", version=version, state=state)
