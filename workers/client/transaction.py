"""A client's unit of work: runs in its own transaction or the caller's, and sends wake-ups after the commit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError

from interlock.db import refusals
from interlock.db.connection import collided, take_turn
from interlock.db.fast_path import Row
from interlock.db.retry import retried
from interlock.workers.client.borrowed import borrowed, is_djangos
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import BadInput, NotYours

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

T = TypeVar("T")


@dataclass(slots=True)
class Unit:
    """The work of one transaction, and the wake-ups to send after its commit."""

    connection: Connection
    wakeups: list[dict[str, Any]] = field(default_factory=list)
    effects: list[Row] = field(default_factory=list)


class Units:
    """Runs units of work on a runtime's database."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def do(self, work: Callable[["Unit"], T], caller: Any = None) -> T:
        """Run `work` in the caller's transaction, or in one of its own. Wake-ups are sent after the commit.

        Args:
            work: called with the transaction.
            caller: a `Session` or `Connection` with the transaction to use, or Django's connection. SQLAlchemy does not
                report the end of a connection's commit: its wake-ups are sent when the commit begins, and a sweep finds
                triggers for which that was too early.

        Raises:
            BadInput: `caller` is none of these, or is Django's and in no transaction.
        """
        _ = self._runtime.wakeups  # an invalid broker address must raise before anything is accepted
        if caller is None:
            return self._retried(lambda before: self._once(work, in_turn=collided(before)))
        if is_djangos(caller):
            with borrowed(caller) as connection:
                lent = Unit(connection)
                given = work(lent)
            caller.on_commit(lambda: self._publish(lent))
            return given
        unit = Unit(_connection(caller))
        done = work(unit)
        if isinstance(caller, Connection):
            _after_commit(caller, lambda: self._runtime.wakeup_sender.ahead(unit.wakeups))
        else:
            _after_commit(caller, lambda: self._publish(unit))
        return done

    def record(self, refused: NotYours, caller: Any = None) -> None:
        """Record a refusal, on a connection of its own: a caller's transaction is left as it is.

        Args:
            refused: the refusal, which PostgreSQL is asked to confirm.
            caller: as for `do`. What it has not committed is unknown to the other connection, so nothing is recorded of
                an instance that it created; nor if it is logged in as somebody else.
        """
        if caller is None or _login(caller) == self._runtime.statements.url.username:
            refusals.record(self._runtime.statements, refused)

    def do_alone(self, statement: Callable[[Engine], T | None], wakeup: Mapping[str, Any]) -> T | None:
        """Run a single statement that is its own transaction, and send a wake-up for the trigger it accepted.

        Args:
            statement: called with the engine for single statements; returns something if it accepted the trigger.
            wakeup: the wake-up.

        Returns:
            What `statement` returned; None: the trigger was not accepted.
        """
        since = self._runtime.wakeup_sender.head_start(wakeup)
        done = self._retried(lambda _: statement(self._runtime.statements))
        if done:
            self._runtime.wakeup_sender.send([wakeup], ahead_since=since)
        return done

    def _once(self, work: Callable[["Unit"], T], *, in_turn: bool) -> T:
        with self._runtime.database.connect() as connection:
            if in_turn:
                take_turn(connection)
            unit = Unit(connection)
            done = work(unit)
            connection.commit()
        self._publish(unit)
        return done

    def _publish(self, unit: "Unit") -> None:
        if unit.wakeups:
            self._runtime.wakeup_sender.send(list(unit.wakeups))
        if unit.effects:
            self._runtime.wakeup_sender.effects(unit.effects)

    def _retried(self, work: Callable[[DBAPIError | None], T]) -> T:
        return retried(work, pause=self._runtime.pause)  # harmless, because the work carries idempotency keys


def _login(caller: object) -> str | None:
    if is_djangos(caller):
        return str(caller.connection.info.user)
    return _connection(caller).engine.url.username


def _connection(caller: object) -> Connection:
    from sqlalchemy.orm import Session  # noqa: PLC0415 - who has no session need not wait for it

    match caller:
        case Connection():
            return caller
        case Session():
            return caller.connection()
    raise BadInput(f"session must be a Session, a Connection or Django's connection, not {type(caller).__name__}")


_PENDING: "WeakKeyDictionary[Session | Connection, list[Callable[[], None]]]" = WeakKeyDictionary()


def _after_commit(caller: "Session | Connection", publish: Callable[[], None]) -> None:
    """Call `publish` once this caller's transaction commits; drop it if the transaction rolls back."""
    pending = _PENDING.get(caller)
    if pending is None:
        pending = _PENDING[caller] = []
        of_session = not isinstance(caller, Connection)  # `commit` of a connection is as it begins: there is no other

        @event.listens_for(caller, "after_commit" if of_session else "commit")
        def _commit(ended: Any) -> None:
            while pending and not (of_session and ended.in_nested_transaction()):  # releasing a savepoint is no commit
                pending.pop(0)()

        @event.listens_for(caller, "after_rollback" if of_session else "rollback")
        def _rollback(ended: Any) -> None:
            if not (of_session and ended.in_nested_transaction()):  # what was enqueued before it may still commit
                pending.clear()

    pending.append(publish)
