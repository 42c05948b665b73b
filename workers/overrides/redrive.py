"""Gives dead requests and effects a new set of attempts: `interlock redrive`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from uuid import UUID

from interlock.db.core import effects, instances, requests
from interlock.workers.overrides.at_once import AtOnce, at_once
from interlock.workers.overrides.transaction import GOVERNANCE, OverrideOrder, require_operator
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from interlock.workflows.input.arguments import door
from interlock.workflows.machines.governance.redrive import MOST


@dataclass(frozen=True, slots=True)
class Redriven:
    """The ids of what was given new attempts; and `quarantined`, `unreadable` -> the dead requests that were left."""

    ids: Sequence[str]
    left: Mapping[str, Sequence[str]]


@door
def redrive(
    runtime: Runtime, ids: Sequence[str] | None, order: OverrideOrder, *, project: str | None = None
) -> Redriven:
    """Give dead requests and effects a new set of attempts. An event says who did it and why,
    and by which token; so do the events of what is redriven.

    Args:
        runtime: whose database.
        ids: of requests and effects; None: all, without quarantined requests and those that cannot be read.
        order: the operator, and why.
        project: only what is of this project; None: of every one.

    Raises:
        NotAnOperator: `order.by` is none.
        CannotMove, StillDeciding: as `at_once`.
        BadInput: none of these ids can be redriven.
    """
    named = " ".join(ids) if ids is not None else "--all"
    with at_once(runtime) as acting:
        connection, by, reason = acting.connection, order.by, order.reason
        require_operator(connection, by, "redrive", named, project=project or runtime.settings.project)
        triggers = [dict(row) for row in requests.redrive(connection, ids, by=by, reason=reason, project=project)]
        effect_ids = None if ids is None else _uuids(ids)
        acts = effects.redrive(connection, effect_ids, by=by, reason=reason, project=project)
        left = requests.unrevived(connection, project=project) if ids is None else {}
        redriven = [row["request_id"] for row in triggers], [str(row["id"]) for row in acts]
        record(acting, *redriven, order, project=project)
    runtime.wakeups.partitions(triggers)
    runtime.wakeups.effects(acts)
    if ids is not None and not triggers and not acts:
        raise BadInput(
            f"none of these can be redriven: {', '.join(ids)}. `interlock dead` lists what can be, and why it died; "
            "`interlock effect retry ID` says why an effect cannot be."
        )
    return Redriven([each for kind in redriven for each in kind], left)


def record(
    acting: AtOnce, request_ids: Sequence[str], effect_ids: Sequence[str], order: OverrideOrder, *, project: str | None
) -> None:
    """Have history say who gave these new attempts, and why (GOVERN-12).

    Args:
        acting: the transaction that does so.
        request_ids, effect_ids: what is redriven; of none, nothing is recorded.
        order: the operator, and why.
        project: whose they are; None: of every one, which is recorded where what gives power is.
    """
    for start in range(0, max(len(request_ids), len(effect_ids)), MOST):
        terms = {"requests": request_ids[start : start + MOST], "effects": effect_ids[start : start + MOST]}
        name = f"redrive-{token_hex(6)}"
        made = acting.born("redrive", name, by=order.by, terms=terms, project=project or GOVERNANCE, proof=order.proof)
        acting.move(made, "redrive", by=order.by, reason=order.reason, right=order.right)


def _uuids(ids: Collection[str]) -> list[UUID]:
    return [found for each in ids if (found := instances.as_uuid(each)) is not None]
