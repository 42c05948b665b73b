"""One unit of a client's work: a transaction of its own or the caller's, and the hints that follow its commit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import random
from time import sleep
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, RowMapping, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from db.connect import collided, retryable, take_turn
from workers.runtime import Runtime
from workflows.backoff import full_jitter

T = TypeVar("T")

FAULTS, COLLISIONS = 2, 10  # attempts


@dataclass(slots=True)
class Unit:
    """One transaction's work, and what to hint at once it is committed."""

    connection: Connection
    hints: list[dict[str, Any]] = field(default_factory=list)
    effects: list[RowMapping] = field(default_factory=list)


class Units:
    """Runs units of work on a runtime's database."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def do(self, work: Callable[["Unit"], T], session: Session | None) -> T:
        """Run `work` in the caller's transaction, or in one of our own; hints go out after the commit."""
        _ = self._runtime.hints  # what is wrong with the broker's address should show before anything is accepted
        if session is not None:
            unit = Unit(session.connection())
            done = work(unit)
            _after_commit(session, lambda: self._publish(unit))
            return done
        return _again(lambda collided_before: self._once(work, in_turn=collided_before))

    def do_alone(self, statement: Callable[[Engine], T | None], hint: Mapping[str, Any]) -> T | None:
        """Run a statement that is a transaction of its own, and hint at what it accepted.

        Args:
            statement: is given the engine for single statements; returns None when it accepted nothing.
            hint: what to hint at.
        """
        since = self._runtime.courier.head_start(hint)
        done = _again(lambda _: statement(self._runtime.statements))
        if done is not None:
            self._runtime.courier.hand([hint], ahead_since=since)
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
        if unit.hints:
            self._runtime.courier.hand(list(unit.hints))
        if unit.effects:
            self._runtime.hints.effects(unit.effects)


def _again(work: Callable[[bool], T]) -> T:
    """Do it again after a fault that may pass: the work carries ids, so that is harmless.

    Once, since connections of before a restart are found dead on use. Often where it collided: callers that create the
    same instances in different orders wait for each other in a circle, of which PostgreSQL stops one at a time.

    Args:
        work: is told whether it has collided before.
    """
    collisions = 0
    for attempt in count(1):
        try:
            return work(collisions > 0)
        except DBAPIError as error:
            collisions += collided(error)
            if not retryable(error) or attempt == (COLLISIONS if collided(error) else FAULTS):
                raise
            if collided(error):
                sleep(full_jitter(attempt, base_seconds=0.05, cap_seconds=1.0, chance=random()))  # noqa: S311 - no secret
    raise AssertionError


def _after_commit(session: Session, publish: Callable[[], None]) -> None:
    """Call `publish` once this session's transaction commits; forget it if that rolls back."""
    pending = session.info.get("interlock")
    if pending is None:
        pending = session.info["interlock"] = []

        @event.listens_for(session, "after_commit")
        def _commit(ended: Session) -> None:
            while pending and not ended.in_nested_transaction():  # releasing a savepoint is no commit
                pending.pop(0)()

        @event.listens_for(session, "after_rollback")
        def _rollback(ended: Session) -> None:
            if not ended.in_nested_transaction():  # what was enqueued before the savepoint may still commit
                pending.clear()

    pending.append(publish)
