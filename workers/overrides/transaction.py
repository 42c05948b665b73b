"""One override: its checks, its moves and their consequences, all in one commit; in a dry run, all rolled back.

It holds the locks of all partitions, so nobody else decides meanwhile. A dry run does the same work and rolls it back,
so its report is what would have happened. The engine makes the moves, by the machine's own transitions; only guards and
approvals are passed over (`workflows.decide`). PostgreSQL refuses the moves of anybody who is not an operator.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError, OperationalError
from uuid_utils.compat import uuid7

from interlock.db.connection import collided, transaction
from interlock.db.core import instances, requests, rounds
from interlock.db.core.instances import InstanceRow
from interlock.db.core.request_rows import OPERATOR, Right, internal
from interlock.db.operations import operators, overrides
from interlock.db.retry import retried
from interlock.workers.access.tokens import Principal
from interlock.workers.client.receipts import require_version
from interlock.workers.engine.applier import Round
from interlock.workers.overrides.scheduler_preview import ROUNDS, Follow
from interlock.workers.runtime import Runtime
from interlock.workflows.definition import Transition
from interlock.workflows.errors import Attempt, BadInput, InterlockError, NotYours, Refused
from interlock.workflows.input import names
from interlock.workflows.input.arguments import record
from interlock.workflows.output.suggestions import offered
from interlock.workflows.versioning.shortest_path import route

P = ParamSpec("P")
T = TypeVar("T")
GOVERNANCE = "interlock:governance"  # the project of what gives power in all others


class NotAnOperator(NotYours):
    """Only operators override. `interlock operator list` names them; one of them can run `operator grant NAME`."""


class CannotOverride(Refused):
    """The machine has no such transition, or an operator cannot pass over what prevents it; nothing was changed."""


class StillDeciding(InterlockError):
    """Others hold a partition for longer than an override waits (a merge that lands, a very large round); nothing was
    changed. Try again."""


@record
@dataclass(frozen=True, slots=True)
class OverrideOrder:
    """Who wants the override, why, and whether it is a dry run.

    Attributes:
        by, reason: who and why.
        dry_run: keep nothing.
        if_version: only if the instance that it names is still at this version (EVENT-16); None: at any.
        principal: who asks for it with a token, in the token's name; None: nobody.
    """

    by: str
    reason: str
    dry_run: bool = False
    if_version: int | None = None
    principal: Principal | None = None

    def __post_init__(self) -> None:
        names.name("by", self.by)
        names.reason("reason", self.reason)
        if not isinstance(self.principal, Principal | None):
            raise BadInput("principal must be what `tokens.find` returned")

    @property
    def right(self) -> Right:
        """The right of an operator's moves, and by which token they are asked for."""
        return OPERATOR._replace(proof=self.proof)

    @property
    def proof(self) -> str | None:
        """The token that it is asked for with; None: with none."""
        return self.principal.proof() if self.principal else None


@dataclass(frozen=True, slots=True)
class MadeMove:
    """One move that was made (in a dry run: would be). `passed_over`: the guards not checked, and `approval`."""

    instance: str
    id: UUID
    trigger: str
    from_state: str
    to_state: str
    passed_over: tuple[str, ...]


@dataclass(slots=True)
class Done:
    """The result of an override.

    Attributes:
        dry_run: nothing was kept.
        moves: the operator's own, in order.
        notes: what else was changed (a link waived, a task replaced).
        follows: the consequences that need no wait for anybody; only of a dry run.
        made: new instances, name -> id.
    """

    dry_run: bool
    moves: list[MadeMove] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    follows: list[str] = field(default_factory=list)
    made: dict[str, UUID] = field(default_factory=dict)


@dataclass(slots=True)
class Operation:
    """An override in progress, in its transaction.

    Attributes:
        runtime, connection, order: where, and what is ordered.
        ref: the instance that it is of, as it was named.
        done: the result so far.
        rounds: what was applied so far, to be published after the commit.
        runs: the schedulers of the runs that were entered, by the run's id.
    """

    runtime: Runtime
    connection: Connection
    order: OverrideOrder
    ref: str | UUID
    done: Done
    rounds: Round = field(default_factory=Round)
    runs: dict[UUID, Follow] = field(default_factory=dict)

    def find(self, ref: str | UUID, *types: str) -> InstanceRow:
        """The instance that a REF names, of one of the types.

        Raises:
            UnknownInstance, AmbiguousInstance: as `db.core.instances.find`.
            VersionConflict: the override is of this instance, and it is not at the version of the order.
        """
        found = instances.find(self.connection, ref, self.runtime.settings.project, *types)
        self.apply(found["id"])  # requests accepted earlier are applied earlier
        found = self.again(found)
        if ref == self.ref:
            require_version(found, self.order.if_version)
        return found

    def enter(self, run_id: UUID, instance: InstanceRow) -> InstanceRow:
        """Bring the scheduler of an instance's run up to date, and drop what it fired on this instance; returns it."""
        if run_id not in self.runs:
            self.runs[run_id] = Follow(self.connection, self.runtime.applier, run_id)
            self.runs[run_id].catch_up()
        overrides.forget_owed(self.connection, run_id, only=instance["id"])
        return self.again(instance)

    def again(self, instance: InstanceRow) -> InstanceRow:
        """An instance, read again."""
        return instances.by_id(self.connection, instance["id"])

    def walk(self, instance: InstanceRow, to: str, metadata: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Take an instance to a state by the machine's shortest path.

        Args:
            instance: as read.
            to: the state.
            metadata: trigger -> its event's metadata beside operator and reason.

        Raises:
            CannotOverride: there is no path; the message names the legal triggers.
        """
        definition = self.runtime.catalogue.get(instance["workflow_type"], instance["definition_version"])
        state = instance["current_state"]
        way = route(definition, state, to)
        if not way:
            legal = ", ".join(definition.legal(state)) or "nothing: it has ended"
            there = "is" if way == () else f"cannot get from {state} to"
            raise CannotOverride(f"{name_of(instance)} {there} {to}{'' if way is None else ' already'}; legal: {legal}")
        self.take(instance, way, metadata or {})

    def fire(self, instance: InstanceRow, trigger: str, to: str, metadata: Mapping[str, Any]) -> None:
        """Fire one trigger that leads to a state, even out of a terminal state.

        Raises:
            CannotOverride: it does not lead there, or its guards refuse (those of an exceptional move are checked).
        """
        definition = self.runtime.catalogue.get(instance["workflow_type"], instance["definition_version"])
        found = [move for move in definition.moves.get((trigger, instance["current_state"]), ()) if move.dest == to]
        if not found:
            legal = ", ".join(definition.legal(instance["current_state"])) or "nothing: it has ended"
            raise CannotOverride(f"{name_of(instance)} is {instance['current_state']}; legal there: {legal}")
        self.take(instance, found[:1], {trigger: metadata})

    def take(self, instance: InstanceRow, way: Sequence[Transition], metadata: Mapping[str, Mapping[str, Any]]) -> None:
        """Take an instance along a path; each request is bound to the version that the one before leaves."""
        request_ids = [str(uuid7()) for _ in way]
        rows = [
            self._request(instance, move, request_id, instance["version"] + place, metadata.get(move.trigger, {}))
            for place, (move, request_id) in enumerate(zip(way, request_ids, strict=True))
        ]
        requests.accept(self.connection, rows)
        self.apply(instance["id"])
        self._note(instance, request_ids)

    def _request(
        self, instance: InstanceRow, move: Transition, request_id: str, version: int, metadata: Mapping[str, Any]
    ) -> dict[str, Any]:
        who = {"operator": self.order.by, "reason": self.order.reason, "override": {"to": move.dest}}
        return internal(
            request_id,
            instance["id"],
            move.trigger,
            by=self.order.by,
            right=self.order.right,
            origin="override",
            version=version,
            metadata={**metadata, **who},
        )

    def settle(self, run_id: UUID) -> None:
        """Apply whatever follows by itself in a run that was entered. Raises as `apply`."""
        for _ in range(ROUNDS):
            if not (owed := overrides.owed(self.connection, run_id)):
                return
            self.apply(*owed)
            self.runs[run_id].catch_up()

    def apply(self, *instance_ids: UUID) -> None:
        """Apply what is due on instances. Raises `CannotOverride` if PostgreSQL refuses it."""
        try:
            self.rounds += self.runtime.applier.apply_for(self.connection, instance_ids)
        except IntegrityError as error:
            raise CannotOverride(f"the database refuses it: {str(error.orig).strip().splitlines()[0]}") from error

    def _note(self, instance: InstanceRow, request_ids: Sequence[str]) -> None:
        settled = requests.by_ids(self.connection, request_ids)
        for request_id in request_ids:
            row = settled[request_id]
            result = row["result"] or {}
            if row["status"] != "applied":
                raise CannotOverride(f"{name_of(instance)}: {row['error'] or result.get('message') or row['status']}")
            passed_over = tuple(result["passed_over"])
            move = MadeMove(
                name_of(instance), instance["id"], row["trigger"], result["from"], result["to"], passed_over
            )
            self.done.moves.append(move)


def again_if_collided(function: Callable[P, T]) -> Callable[P, T]:
    """Make an override again that PostgreSQL stopped for somebody else's transaction (a deadlock), as `retried` does.

    Nothing of it was kept then. After a lost connection it may have been: that is for the operator to look at.
    """

    @wraps(function)
    def made(*args: P.args, **kwargs: P.kwargs) -> T:
        return retried(lambda _: function(*args, **kwargs), after=collided)

    return made


@contextmanager
def operating(runtime: Runtime, order: OverrideOrder, name: str, ref: str | UUID) -> Iterator[Operation]:
    """One override in one transaction, committed at the end; a dry run is rolled back.

    Args:
        runtime: where.
        order: who, why, and whether it is a dry run.
        name, ref: the override and its instance, which the record of a refusal names.

    Raises:
        NotAnOperator: `order.by` is not an operator.
        CannotOverride: there is no such transition, or an override cannot bypass what prevents it. Nothing changed.
        VersionConflict: its instance is not at the version of the order. Nothing changed.
        StillDeciding: others hold a partition for too long. Nothing changed; try again.
    """
    with transaction(runtime.database) as connection:
        require_operator(connection, order.by, name, ref, project=runtime.settings.project)
        hold_every_partition(connection)
        operation = Operation(runtime, connection, order, ref, Done(order.dry_run))
        yield operation
        if order.dry_run:
            operation.done.follows = [line for follow in operation.runs.values() for line in follow.consequences()]
            connection.rollback()
    if not order.dry_run:
        runtime.publish(operation.rounds)
        for follow in operation.runs.values():
            follow.publish(runtime)


def hold_every_partition(connection: Connection) -> None:
    """Take the locks of all partitions until this transaction ends, so that nobody else decides.

    Raises:
        StillDeciding: they were not free in time.
    """
    try:
        rounds.lock_all(connection, requests.PARTITIONS)
    except OperationalError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise
        raise StillDeciding(
            "other transactions held the partitions' locks for too long (a merge or a very large round); nothing was "
            "changed, try again"
        ) from error


def require_operator(
    connection: Connection, name: str, attempted: str, ref: str | UUID, *, project: str = GOVERNANCE
) -> None:
    """Raise `NotAnOperator` unless the person is an operator now; `transaction` records that it was attempted.

    Args:
        connection: the transaction in which the operator would act.
        name: the person.
        attempted: what they want to do: a trigger or a command.
        ref: on which instance: a REF, or a text if there is none.
        project: the project in which a REF is looked up.
    """
    if operators.current(connection, [name]):
        return
    command = offered("operator", "grant", name, reason="WHY")
    if not operators.grants(connection):
        message = f"nobody is an operator. `{command}` makes {name!r} one"
    else:
        message = (
            f"{name!r} is not an operator. `interlock operator list` shows who is; one of them can run `{command}`"
        )
    found = None
    with suppress(Refused):
        found = instances.find(connection, ref, project)["id"]
    row = {"triggered_by": name, "attempted": attempted, "workflow_id": found, "instance": str(ref), "project": project}
    raise NotAnOperator(message, Attempt("operate", [row]))


def name_of(instance: InstanceRow) -> str:
    """An instance's name for people."""
    return f"{instance['workflow_type']}/{instance['entity_id']}"
