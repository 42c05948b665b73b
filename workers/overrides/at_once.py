"""Moves of what gives power, made at once: accepted and applied in one transaction, whether workers run or not."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, RowMapping
from sqlalchemy.exc import IntegrityError
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.core import requests
from interlock.db.core.request_rows import Right, by_state, internal, own_id
from interlock.workers.engine import creation
from interlock.workers.engine.applier import Round
from interlock.workers.engine.creation import Birth
from interlock.workers.overrides.transaction import GOVERNANCE, hold_every_partition
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import Refused
from interlock.workflows.output.suggestions import offered


class CannotMove(Refused):
    """The machine, one of its guards or PostgreSQL refuses the move; the message says why. Nothing was changed."""


@dataclass(slots=True)
class AtOnce:
    """A transaction that holds every partition's lock, and what it has done."""

    runtime: Runtime
    connection: Connection
    rounds: Round = field(default_factory=Round)

    def born(
        self,
        type_: str,
        entity_id: str,
        *,
        by: str,
        terms: Mapping[str, Any],
        project: str = GOVERNANCE,
        proof: str | None = None,
    ) -> UUID:
        """Create an instance of what gives power, with its terms as its context; returns its id.

        `proof`: the token that it is asked for with.

        Raises:
            BadInput: the terms are not valid.
        """
        definition = self.runtime.catalogue.get(type_)
        birth = Birth(definition, entity_id, project, by, terms, proof=proof)
        self.rounds.effects_due += creation.deliver(self.connection, [birth]).effects_due
        return birth.id

    def move(
        self,
        instance_id: UUID,
        trigger: str,
        *,
        by: str,
        reason: str,
        right: Right,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Fire a trigger and apply it. `more` becomes metadata of the event, beside the reason.

        Raises:
            NotYours: `by` has not the right that the trigger needs.
            CannotMove: it is refused.
        """
        request_id = str(uuid7())
        row = internal(
            request_id, instance_id, trigger, by=by, right=right, origin="agent", metadata={**more, "reason": reason}
        )
        requests.accept(self.connection, [row])
        self.apply([instance_id])
        settled = requests.by_ids(self.connection, [request_id])[request_id]
        if settled["status"] != "applied":
            raise CannotMove(f"{trigger} was not applied: {self._why_not(settled)}")

    def apply(self, instance_ids: Collection[UUID]) -> None:
        """Apply what is due on instances. Raises `CannotMove` if PostgreSQL refuses it."""
        try:
            self.rounds += self.runtime.applier.apply_for(self.connection, instance_ids)
        except IntegrityError as error:
            raise CannotMove(str(error.orig).strip().splitlines()[0]) from error

    def _why_not(self, settled: RowMapping) -> str:
        ahead = requests.in_retry_before(self.connection, settled["workflow_id"], settled["seq"])
        if settled["status"] != "pending" or ahead is None:
            return str(settled["error"] or (settled["result"] or {}).get("message") or f"it is {settled['status']}")
        aside = offered("quarantine", "request", ahead["request_id"], reason="WHY")
        return (
            f"it waits for {ahead['trigger']} by {ahead['triggered_by']}, which failed and is tried again at "
            f"{ahead['not_before']:%Y-%m-%d %H:%M:%S} UTC ({ahead['error']}). Wait for that, or set "
            f"{ahead['trigger']} aside ({aside}), then do this again"
        )

    def later(self, instance_id: UUID, version: int, trigger: str, at: datetime) -> None:
        """Have Interlock fire a trigger at an instant, unless the instance has moved on from a version by then."""
        timer = internal(
            own_id(instance_id, version, trigger),
            instance_id,
            trigger,
            by="system",
            right=by_state(version),
            origin="timer",
            not_before=at,
        )
        requests.accept(self.connection, [timer])


@contextmanager
def at_once(runtime: Runtime, database: Engine | None = None) -> Iterator[AtOnce]:
    """One transaction in which what gives power moves; afterwards its moves are announced and its notices sent.

    Args:
        runtime: the definitions, and the broker.
        database: another login's pool than the runtime's usual one; nothing is announced then, because whoever migrates
            may have no broker. The sweeps send what is due.

    Raises:
        StillDeciding: another transaction decides for too long; nothing was changed.
    """
    with transaction(database or runtime.database) as connection:
        hold_every_partition(connection)
        acting = AtOnce(runtime, connection)
        yield acting
    if database is None:
        runtime.publish(acting.rounds)
