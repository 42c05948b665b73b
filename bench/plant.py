"""Interlock as one side of a comparison: a client, instances that cycle for ever, and the wait until all is applied."""

import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from uuid import UUID

from psycopg import Connection, connect
from uuid_utils.compat import uuid7

from bench.stage import Stage
from interlock.db.schema import in_schema
from interlock.supervisor.servers.endpoints import Servers
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.runtime import Runtime

INSTANCES = 500
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.003
CYCLES = {
    "pr_review": (("start_review",), ("request_changes", "resubmit")),
    "story": (("design_complete", "start_coding"), ("submit_pr", "request_changes")),
}
PENDING = in_schema("SELECT EXISTS (SELECT FROM interlock.trigger_requests WHERE status = 'pending')")


class Plant:
    """Instances of one type and an endless sequence of legal triggers on them.

    The instances take turns: each gets its next trigger after all others have had theirs.
    """

    def __init__(self, stage: Stage, servers: Servers, type_: str = "pr_review") -> None:
        self.client = Client(Runtime(stage.settings(servers)))
        self.database = connect(servers.database_url, autocommit=True)
        self._type = type_
        self._fired = self._count_applied()
        self._next: Iterator[tuple[UUID, str]] = iter(())

    def populate(self, instances: int = INSTANCES) -> None:
        """Create instances, and use these from now on."""
        project = uuid7()
        births = [self.client.birth(self._type, f"B-{n}", project=project) for n in range(instances)]
        self.client.create_many(births)
        first, then = CYCLES[self._type]
        self.take_over([birth.id for birth in births], first, then)

    def take_over(self, ids: Sequence[UUID], first: Sequence[str], then: Sequence[str]) -> None:
        """Use these instances: `first` leads each into the cycle `then`."""
        self._next = turns(ids, first, then)

    def forget(self) -> None:
        """Drop the references to the instances, so that only Interlock's memory is measured."""
        self._next = iter(())

    def single(self, messages: int) -> float:
        """Fire triggers one by one, each in its own commit; returns the seconds until the last is applied."""
        began = self.accept(messages)
        return self._settled(messages) - began

    def bulk(self, triggers: int) -> float:
        """Fire many triggers by one call; returns the seconds until the last is applied."""
        began = self.accept_many(triggers)
        return self._settled(triggers) - began

    def accept(self, messages: int) -> float:
        """Fire triggers one by one; returns the instant of the first call. They are accepted then, applied later."""
        work = list(islice(self._next, messages))
        fire = self.client.fire
        began = time.perf_counter()
        for instance_id, trigger in work:
            fire(instance_id, trigger, by="bench")
        return began

    def accept_many(self, triggers: int) -> float:
        """Fire many triggers by one call; returns the instant of the call."""
        work = [Firing(instance_id, trigger, "bench") for instance_id, trigger in islice(self._next, triggers)]
        began = time.perf_counter()
        self.client.fire_many(work)
        return began

    def next(self) -> tuple[UUID, str]:
        """The next legal trigger, for a caller that fires it."""
        self._fired += 1
        return next(self._next)

    def close(self) -> None:
        """Close the connections."""
        self.client.runtime.close()
        self.database.close()

    def _settled(self, fired: int) -> float:
        """Wait until nothing is pending; returns the instant, which polling makes up to 3 ms late, to our disadvantage.

        Raises:
            RuntimeError: triggers stay pending, or not all were applied, so the figure would be wrong.
        """
        until = time.perf_counter() + PATIENCE_SECONDS
        while _ask(self.database, PENDING):
            if time.perf_counter() > until:
                raise RuntimeError(f"triggers still pending after {PATIENCE_SECONDS:g} s")
            time.sleep(POLL_SECONDS)
        now = time.perf_counter()
        self._fired += fired
        if (applied := self._count_applied()) != self._fired:
            raise RuntimeError(f"{applied} triggers applied of {self._fired} fired")
        return now

    def _count_applied(self) -> int:
        return _ask(
            self.database, in_schema("SELECT count(*) FROM interlock.trigger_requests WHERE status = 'applied'")
        )


def turns(ids: Sequence[UUID], first: Sequence[str], then: Sequence[str]) -> Iterator[tuple[UUID, str]]:
    """Triggers on instances in turn: first those of `first` once, then those of `then` for ever."""
    for trigger in first:
        yield from ((instance_id, trigger) for instance_id in ids)
    for trigger in cycle(then):
        yield from ((instance_id, trigger) for instance_id in ids)


def _ask(database: Connection, question: str) -> int:
    row = database.execute(question).fetchone()
    return int(row[0]) if row else 0
