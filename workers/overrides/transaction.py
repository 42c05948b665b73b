"""One override: its checks, its moves and what they change, all in one commit, or (a dry run) none of it.

While it lasts nobody else decides: it holds every lane. So a dry run is the same thing, rolled back, and what it tells
is what would have happened. The moves are the machine's own, made by the engine; only guards and approvals are passed
over (`workflows.decide`), and PostgreSQL refuses whoever is no operator.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, RowMapping
from sqlalchemy.exc import IntegrityError, OperationalError
from uuid_utils.compat import uuid7

from db import instances, operators, overrides, requests, rounds
from db.requests import lane_of
from workers.engine import Round
from workers.firing import named
from workers.overrides.follow import Follow
from workers.runtime import Runtime
from workflows.definition import Transition
from workflows.errors import InterlockError, Refused
from workflows.route import route

REASON_LIMIT = 2_000


class NotAnOperator(Refused):
    """Only operators override. `interlock operator list` names them; one of them can say `operator grant NAME`."""


class CannotOverride(Refused):
    """The machine has no such way, or something stands in it that an operator cannot pass over; nothing was changed."""


class StillDeciding(InterlockError):
    """Others decide for longer than an override waits (a merge that lands, a very large round); nothing was changed.
    Try again."""


@dataclass(frozen=True, slots=True)
class Order:
    """Who wants it, why, and whether only to see what would happen."""

    by: str
    reason: str
    dry_run: bool = False

    def __post_init__(self) -> None:
        named("by", self.by)
        named("reason", self.reason.strip(), REASON_LIMIT)


@dataclass(frozen=True, slots=True)
class Move:
    """One move that was made (in a dry run: would be). `passed_over`: guards that were not asked, and `approval`."""

    instance: str
    id: UUID
    trigger: str
    from_state: str
    to_state: str
    passed_over: tuple[str, ...]


@dataclass(slots=True)
class Done:
    """What an override came to.

    Attributes:
        dry_run: nothing of it was kept.
        moves: the operator's own, in order.
        notes: what else was done with them (a link waived, a task made in another's place).
        follows: what follows by itself, as far as nobody has to be waited for; only of a dry run.
        made: new instances, name -> id.
    """

    dry_run: bool
    moves: list[Move] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    follows: list[str] = field(default_factory=list)
    made: dict[str, UUID] = field(default_factory=dict)


@dataclass(slots=True)
class Operation:
    """An override that is going on, in its transaction."""

    runtime: Runtime
    connection: Connection
    order: Order
    done: Done
    rounds: Round = field(default_factory=Round)
    runs: dict[UUID, Follow] = field(default_factory=dict)

    def find(self, ref: str | UUID, *types: str) -> RowMapping:
        """The instance that a REF names, of one of the types.

        Raises:
            UnknownInstance, AmbiguousInstance: none answers to it, or several do.
            CannotOverride: it is of another type.
        """
        found = instances.find(self.connection, str(ref))
        if types and found["workflow_type"] not in types:
            raise CannotOverride(f"{name_of(found)} is no {' or '.join(types)}")
        self._apply(found["id"])  # what was asked before is done before
        return self.again(found)

    def enter(self, run_id: UUID, instance: RowMapping) -> RowMapping:
        """Bring the scheduler of an instance's run up to date; the instance, as it then stands and is left alone."""
        if run_id not in self.runs:
            gate = self.runtime.catalogue.get("test_gate")
            self.runs[run_id] = Follow(self.connection, self.runtime.applier, run_id, gate)
            self.runs[run_id].catch_up()
        overrides.forget_owed(self.connection, run_id, only=instance["id"])
        return self.again(instance)

    def again(self, instance: RowMapping) -> RowMapping:
        """An instance as it stands now."""
        return instances.find(self.connection, str(instance["id"]))

    def walk(self, instance: RowMapping, to: str, says: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Take an instance to a state by the machine's shortest way.

        Args:
            instance: as it stands.
            to: the state.
            says: trigger -> what its event says beside operator and reason.

        Raises:
            CannotOverride: there is no such way; the message says what would be legal.
        """
        definition = self.runtime.catalogue.get(instance["workflow_type"], instance["definition_version"])
        state = instance["current_state"]
        way = route(definition, state, to)
        if not way:
            legal = ", ".join(definition.legal(state)) or "nothing, it is finished"
            there = "is" if way == () else f"has no way from {state} to"
            raise CannotOverride(f"{name_of(instance)} {there} {to}{'' if way is None else ' already'}; legal: {legal}")
        self.take(instance, way, says or {})

    def fire(self, instance: RowMapping, trigger: str, to: str, says: Mapping[str, Any]) -> None:
        """Fire one trigger that leads to a state, whether or not it leaves a terminal one.

        Raises:
            CannotOverride: it does not, or its guards refuse (an exceptional move's are asked).
        """
        definition = self.runtime.catalogue.get(instance["workflow_type"], instance["definition_version"])
        found = [move for move in definition.moves.get((trigger, instance["current_state"]), ()) if move.dest == to]
        if not found:
            legal = ", ".join(definition.legal(instance["current_state"])) or "nothing, it is finished"
            raise CannotOverride(f"{name_of(instance)} is {instance['current_state']}; legal there: {legal}")
        self.take(instance, found[:1], {trigger: says})

    def take(self, instance: RowMapping, way: Sequence[Transition], says: Mapping[str, Mapping[str, Any]]) -> None:
        """Take an instance along a way, each move bound to the one before it."""
        request_ids = [str(uuid7()) for _ in way]
        rows = [
            self._request(instance, move, request_id, instance["version"] + place, says.get(move.trigger, {}))
            for place, (move, request_id) in enumerate(zip(way, request_ids, strict=True))
        ]
        requests.accept(self.connection, rows)
        self._apply(instance["id"])
        self._note(instance, request_ids)

    def _request(
        self, instance: RowMapping, move: Transition, request_id: str, version: int, says: Mapping[str, Any]
    ) -> dict[str, Any]:
        return {
            "request_id": request_id,
            "fingerprint": request_id.encode().hex(),
            "workflow_id": instance["id"],
            "trigger": move.trigger,
            "triggered_by": self.order.by,
            "metadata": {**says, "operator": self.order.by, "reason": self.order.reason, "override": {"to": move.dest}},
            "origin": "override",
            "bound_version": version,
        }

    def _apply(self, instance_id: UUID) -> None:
        try:
            while (done := self.runtime.applier.round(self.connection, lane_of(instance_id), only=instance_id)).taken:
                self.rounds += done
        except IntegrityError as error:
            raise CannotOverride(f"the database refuses it: {str(error.orig).strip().splitlines()[0]}") from error

    def _note(self, instance: RowMapping, request_ids: Sequence[str]) -> None:
        settled = requests.by_ids(self.connection, request_ids)
        for request_id in request_ids:
            row = settled[request_id]
            result = row["result"] or {}
            if row["status"] != "applied":
                raise CannotOverride(f"{name_of(instance)}: {row['error'] or result.get('message') or row['status']}")
            passed_over = tuple(result["passed_over"])
            move = Move(name_of(instance), instance["id"], row["trigger"], result["from"], result["to"], passed_over)
            self.done.moves.append(move)


@contextmanager
def operating(runtime: Runtime, order: Order) -> Iterator[Operation]:
    """One override in one transaction, committed at the end; of a dry run nothing is kept.

    Raises:
        NotAnOperator: `order.by` is none; nothing was looked at.
        CannotOverride, StillDeciding: see there.
    """
    with runtime.database.connect() as connection, connection.begin() as transaction:
        require_operator(connection, order.by)
        _hold_every_lane(connection)
        operation = Operation(runtime, connection, order, Done(order.dry_run))
        yield operation
        if order.dry_run:
            operation.done.follows = [line for follow in operation.runs.values() for line in follow.told()]
            transaction.rollback()
    if not order.dry_run:
        runtime.publish(operation.rounds)
        for follow in operation.runs.values():
            follow.publish(runtime)


def _hold_every_lane(connection: Connection) -> None:
    try:
        for lane in range(requests.LANES):
            rounds.lock(connection, lane)
    except OperationalError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise
        raise StillDeciding(
            "others decide for longer than this waits (a merge that lands, a very large round); nothing was changed, "
            "try again"
        ) from error


def require_operator(connection: Connection, name: str) -> None:
    """Raise `NotAnOperator` unless somebody is one now."""
    if operators.among_them(connection, [name]):
        return
    if not operators.grants(connection):
        raise NotAnOperator(f"nobody is an operator. `interlock operator grant {name}` makes {name!r} one")
    raise NotAnOperator(
        f"{name!r} is no operator. `interlock operator list` names them; one of them can say "
        f"`interlock operator grant {name}`"
    )


def name_of(instance: RowMapping) -> str:
    """What people call an instance."""
    return f"{instance['workflow_type']}/{instance['entity_id']}"
