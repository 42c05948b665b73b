"""Gives dead requests and effects a new set of attempts: `interlock redrive`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.core import effects, instances, requests
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from interlock.workflows.input.arguments import door


@dataclass(frozen=True, slots=True)
class Redriven:
    """The ids of what was given new attempts; and `quarantined`, `unreadable` -> the dead requests that were left."""

    ids: Sequence[str]
    left: Mapping[str, Sequence[str]]


@door
def redrive(
    runtime: Runtime, ids: Sequence[str] | None, order: OverrideOrder, *, project: str | None = None
) -> Redriven:
    """Give dead requests and effects a new set of attempts. What is redriven, and its events, say who did it and why.

    Args:
        runtime: whose database.
        ids: of requests and effects; None: all, without quarantined requests and those that cannot be read.
        order: the operator, and why.
        project: only what is of this project; None: of every one.

    Raises:
        NotAnOperator: `order.by` is none.
        BadInput: none of these ids can be redriven.
    """
    named = " ".join(ids) if ids is not None else "--all"
    with transaction(runtime.database) as connection:
        require_operator(connection, order.by, "redrive", named, project=project or runtime.settings.project)
        by, reason = order.by, order.reason
        triggers = [dict(row) for row in requests.redrive(connection, ids, by=by, reason=reason, project=project)]
        effect_ids = None if ids is None else _uuids(ids)
        acts = effects.redrive(connection, effect_ids, by=by, reason=reason, project=project)
        left = requests.unrevived(connection, project=project) if ids is None else {}
    runtime.wakeups.partitions(triggers)
    runtime.wakeups.effects(acts)
    if ids is not None and not triggers and not acts:
        raise BadInput(
            f"none of these can be redriven: {', '.join(ids)}. `interlock dead` lists what can be, and why it died; "
            "`interlock effect retry ID` says why an effect cannot be."
        )
    return Redriven([*(row["request_id"] for row in triggers), *(str(row["id"]) for row in acts)], left)


def _uuids(ids: Collection[str]) -> list[UUID]:
    return [found for each in ids if (found := instances.as_uuid(each)) is not None]
