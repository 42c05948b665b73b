"""Hands live instances over to another system: freezes them here, and takes back what was not started there.

Each batch is one commit, in which nobody else decides. An interrupted handover can be run again: what is frozen is no
longer found among what can be frozen.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from secrets import token_hex
from uuid import UUID

from sqlalchemy import Connection
from uuid_utils.compat import uuid7

from interlock.db.core import requests
from interlock.db.core.request_rows import internal
from interlock.db.operations import handovers
from interlock.db.operations.handovers import Candidate, Choice
from interlock.workers.engine import creation
from interlock.workers.engine.creation import Birth
from interlock.workers.overrides.at_once import AtOnce, CannotMove, at_once
from interlock.workers.overrides.transaction import OverrideOrder, require_operator
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput
from interlock.workflows.forms.start_log import StartLog
from interlock.workflows.input.arguments import door
from interlock.workflows.machines.delivery.approval import APPROVAL

BATCH = 100  # instances in one commit, during which all other triggers wait
Progress = Callable[[int, int], None]
MACHINE = "handover"


@dataclass(frozen=True, slots=True)
class NotFrozen:
    """An instance that cannot be handed over as it is, and why."""

    id: UUID
    entity_id: str
    state: str
    why: str


@dataclass(slots=True)
class HandoverMoves:
    """What was done or, in a dry run, would be.

    Attributes:
        found: the instances that were looked at.
        moved: those that were frozen, given back or confirmed, without their approvals.
        stays: those that were not.
    """

    found: int = 0
    moved: int = 0
    stays: list[NotFrozen] = field(default_factory=list)


class _Rehearsed(Exception):
    """Raised to roll back a dry run's transaction."""


@door
def freeze(
    runtime: Runtime, choice: Choice, order: OverrideOrder, progress: Progress = lambda _, __: None
) -> HandoverMoves:
    """Freeze instances, with the approvals that hold their triggers (HANDOVER-1 to HANDOVER-4).

    Args:
        runtime: whose database and definitions.
        choice: the instances.
        order: the operator, and why; a dry run freezes each batch for real and rolls it back.
        progress: called with the number of instances looked at, and their total.

    Raises:
        BadInput: the type is `approval`.
        NotAnOperator: `order.by` is none.
        CannotMove, StillDeciding: as `at_once`. What was frozen before stays so, and running it again continues.
    """
    if choice.type == APPROVAL.type:
        raise BadInput("an approval is handed over with the instance whose trigger it holds: name that one's type")
    done = HandoverMoves()
    with runtime.database.connect() as reading:
        total = handovers.count_free(reading, choice)
        for page in handovers.free(reading, choice, size=BATCH):
            reading.rollback()  # no transaction is open between pages
            with _acting(runtime, order, "freeze") as acting:
                _freeze(acting, page, order, done)
            done.found += len(page)
            progress(done.found, max(total, done.found))
    return done


@door
def settle(
    runtime: Runtime,
    choice: Choice,
    order: OverrideOrder,
    started: StartLog,
    *,
    back: bool,
    progress: Progress = lambda _, __: None,
) -> HandoverMoves:
    """End handovers of instances: those that were started elsewhere live there for good, or the others go on here.

    Args:
        runtime, choice, order, progress: as `freeze`.
        started: which were started, and which perhaps were.
        back: let those go on here of which it says neither (HANDOVER-9); else confirm those that were (HANDOVER-10).

    Raises:
        NotAnOperator, CannotMove, StillDeciding: as `freeze`.
    """
    done, trigger = HandoverMoves(), "give_back" if back else "confirm"
    with runtime.database.connect() as reading:
        total = handovers.count_frozen(reading, choice)
        for page in handovers.frozen(reading, choice, size=BATCH):
            reading.rollback()
            ids = {each.instance_id for each in page}
            if meant := sorted(ids - started.begun - started.started if back else ids & started.started):
                with _acting(runtime, order, trigger) as acting:
                    _fire(acting, trigger, _handovers(acting.connection, meant), order)
            done.found += len(page)
            done.moved += len(meant)
            progress(done.found, max(total, done.found))
    return done


def _freeze(acting: AtOnce, ids: Sequence[UUID], order: OverrideOrder, done: HandoverMoves) -> None:
    judged = handovers.judged(acting.connection, ids)
    hindered = {each.subject or each.id: each for each in judged if each.why is not None}
    for candidate in judged:
        if candidate.subject is None and (hindrance := hindered.get(candidate.id)):
            done.stays.append(_stays(candidate, hindrance))
    ready = [each for each in judged if (each.subject or each.id) not in hindered]
    definition = acting.runtime.catalogue.get(MACHINE)
    births = [Birth(definition, _name(each), each.project, order.by, _terms(each), proof=order.proof) for each in ready]
    creation.deliver(acting.connection, births)
    _fire(acting, "freeze", [each.id for each in births], order)
    done.moved += sum(each.subject is None for each in ready)


def _stays(candidate: Candidate, hindrance: Candidate) -> NotFrozen:
    why = hindrance.why or ""
    if hindrance.subject is not None:
        why = f"its approval {hindrance.entity_id}: {why}"
    return NotFrozen(candidate.id, candidate.entity_id, candidate.state, why)


def _name(candidate: Candidate) -> str:
    return f"{candidate.type[:40]}.{candidate.entity_id[:40]}-{token_hex(4)}"


def _terms(candidate: Candidate) -> Mapping[str, object]:
    subject = {} if candidate.subject is None else {"subject": str(candidate.subject)}
    return {"instance": str(candidate.id), "at": candidate.at, "head": candidate.head, "system": "temporal"} | subject


def _handovers(connection: Connection, ids: Sequence[UUID]) -> list[UUID]:
    """The handovers of instances, and of the approvals that hold their triggers."""
    approvals = {each.held_by for each in handovers.held(connection, ids) if each.held_by is not None}
    return [each.handover_id for each in handovers.frozen_among(connection, {*ids, *approvals}).values()]


def _fire(acting: AtOnce, trigger: str, ids: Sequence[UUID], order: OverrideOrder) -> None:
    """Fire a trigger on handovers, and apply it."""
    metadata = {"reason": order.reason}
    wanted = [
        internal(str(uuid7()), each, trigger, by=order.by, right=order.right, origin="agent", metadata=metadata)
        for each in ids
    ]
    requests.accept(acting.connection, wanted)
    acting.apply(ids)
    for row in requests.by_ids(acting.connection, [each["request_id"] for each in wanted]).values():
        if row["status"] != "applied":
            raise CannotMove(f"{trigger} was not applied: {(row['result'] or {}).get('message') or row['error']}")


@contextmanager
def _acting(runtime: Runtime, order: OverrideOrder, trigger: str) -> Iterator[AtOnce]:
    """A transaction for a batch; a dry run's is rolled back."""
    with suppress(_Rehearsed), at_once(runtime) as acting:
        require_operator(acting.connection, order.by, trigger, MACHINE)
        yield acting
        if order.dry_run:
            raise _Rehearsed
