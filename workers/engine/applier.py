"""The one function that changes state: lock, decide, write, commit.

Tasks, sweeps, the CLI and effects all reach state through `apply_lane`; PostgreSQL refuses anything else.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine, RowMapping

from db import rounds
from db.connect import retryable, transaction
from db.rounds import Due
from workers.deprecations import Deprecations
from workers.ledger import Ledger
from workers.logs import about, ids
from workers.standing import Standing, take
from workers.tracing import tracing
from workflows.backoff import full_jitter
from workflows.catalogue import Catalogue
from workflows.decide import decide
from workflows.errors import UnknownWorkflow
from workflows.outcomes import Applied, Failed, Waiting

if TYPE_CHECKING:
    from workers.spans import Applying

log = structlog.get_logger()

NAMED = 20  # requests that the line about a round names
BATCH = 500  # requests of one commit: past this, a bigger batch gains nothing and holds its locks longer


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and after how many seconds, a failing request is tried again."""

    max_attempts: int = 8
    base_seconds: float = 0.5
    cap_seconds: float = 600.0

    def delay_seconds(self, attempts: int) -> float | None:
        """The wait before the next attempt after `attempts` failed ones; None when they are used up."""
        if attempts >= self.max_attempts:
            return None
        chance = random.random()  # noqa: S311 - jitter, not a secret
        return full_jitter(attempts, base_seconds=self.base_seconds, cap_seconds=self.cap_seconds, chance=chance)


@dataclass(slots=True)
class Round:
    """What committed rounds did: how many requests they took and which, the moves to announce, what they woke.

    `left`: requests whose guards read what this round changed were left for the next one.
    """

    taken: int = 0
    requests: set[str] = field(default_factory=set)
    left: bool = False
    moves: list[tuple[Standing, str]] = field(default_factory=list)
    woken: list[RowMapping] = field(default_factory=list)
    effects_due: list[RowMapping] = field(default_factory=list)
    settled: list[dict[str, Any]] = field(default_factory=list)
    spans: "Applying | None" = None
    lines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def runs(self) -> set[str]:
        """The runs whose scheduler has something to look at."""
        return {run for standing, _ in self.moves if (run := standing.run_id)}

    def log(self) -> None:
        """Say in the log what was applied, once it is committed: a line for each round."""
        for line in self.lines:
            log.info("applied", **line)

    def __iadd__(self, other: "Round") -> "Round":
        self.taken += other.taken
        self.requests |= other.requests
        self.left |= other.left
        self.moves += other.moves
        self.woken += other.woken
        self.effects_due += other.effects_due
        self.lines += other.lines
        return self


def _line(lane: int, due: Sequence[Due], ledger: Ledger) -> dict[str, Any]:
    return {
        "lane": lane,
        "requests": len(due),
        "moves": len(ledger.events),
        "failed": len(ledger.failures),
        "of": [ids(request) for request in due[:NAMED]],
    }


@dataclass(frozen=True, slots=True)
class Applier:
    """What applying takes: the database, the definitions this process knows, and when to give up."""

    database: Engine
    catalogue: Catalogue
    policy: RetryPolicy = RetryPolicy()
    deprecations: Deprecations = field(default_factory=Deprecations)

    def apply_lane(self, lane: int, *, limit: int = BATCH) -> Round:
        """Apply what is due in a lane, oldest first, in one commit.

        Args:
            lane: which share of the instances; its lock makes this the only decider for them.
            limit: at most so many requests.

        Returns:
            What was done; `taken` is 0 when nothing was due.

        Raises:
            DBAPIError: the infrastructure failed; nothing was written, and the same call may be made again.
        """
        try:
            return self._alone(lane, limit)
        except Exception as error:
            if retryable(error):
                raise
            # One request that cannot be written must not hold up its whole lane.
            log.exception("round_failed", lane=lane)
            return self._one_by_one(lane, limit)

    def round(self, connection: Connection, lane: int, *, limit: int = BATCH, only: UUID | None = None) -> Round:
        """Apply what is due in a lane in the caller's transaction, whose commit it is then a part of.

        Args:
            connection: the transaction; the lane's lock is held until it ends.
            lane, limit: see `apply_lane`.
            only: the requests of one instance.

        Raises:
            DBAPIError: PostgreSQL refuses something, or the infrastructure failed; the transaction is lost.
        """
        due = rounds.gather(connection, lane, limit=limit, only=only)
        if not due:
            return Round()
        standings = take(connection, self.catalogue, due)
        spans = at_work.applying(due) if (at_work := tracing()) else None
        ledger = Ledger(traces=spans.traces) if spans else Ledger()
        for request in due:
            with about(request):
                self._judge(ledger, standings[request["workflow_id"]], request)
        self.deprecations.refresh(connection)
        self.deprecations.tell(connection, lane, ledger.events, ledger.settled)
        ledger.write(connection)
        left = any(standing.halted and standing.id not in ledger.failures for standing in standings.values())
        return Round(
            taken=len(due),
            requests={request["request_id"] for request in due},
            left=left,
            moves=ledger.announced,
            woken=ledger.woken,
            effects_due=ledger.effects_due,
            settled=ledger.settled,
            spans=spans,
            lines=[_line(lane, due, ledger)],
        )

    def _alone(self, lane: int, limit: int, only: UUID | None = None) -> Round:
        with transaction(self.database) as connection:
            done = self.round(connection, lane, limit=limit, only=only)
        if done.spans:
            done.spans.end(done.settled)
        return done

    def _judge(self, ledger: Ledger, standing: Standing, request: Due) -> None:
        standing.halted |= standing.is_stale(request["trigger"])
        if standing.halted:
            return  # a request in retry, or left for the next round, holds up those behind it: they stay pending
        try:
            outcome = decide(standing.definition, standing.case(request))
        except Exception as error:
            log.exception("guard_failed", trigger=request["trigger"])
            standing.halted = True
            self._fail(ledger, request, error)
            return
        if isinstance(outcome, Applied):
            ledger.enter_applied(standing, request, outcome)
        elif isinstance(outcome, Waiting):
            ledger.enter_waiting(standing, request, outcome)
        else:
            ledger.enter_refused(request, outcome)

    def _one_by_one(self, lane: int, limit: int) -> Round:
        with transaction(self.database) as connection:
            due = rounds.gather(connection, lane, limit=limit)
        done = Round()
        for instance_id in (row["workflow_id"] for row in due):  # one request at a time: the fault is its own
            try:
                done += self._alone(lane, 1, instance_id)
            except UnknownWorkflow as error:  # a newer process knows it: leave the request to that one
                log.warning("definition_unknown", instance=str(instance_id), error=str(error))
            except Exception as error:
                if retryable(error):
                    raise
                self._fail_first(lane, instance_id, error)
                done.taken += 1
        return done

    def _fail_first(self, lane: int, instance_id: UUID, error: Exception) -> None:
        with transaction(self.database) as connection:
            ledger = Ledger()
            for request in rounds.gather(connection, lane, limit=1, only=instance_id):
                self._fail(ledger, request, error)
            ledger.write(connection)

    def _fail(self, ledger: Ledger, request: Due, error: Exception) -> None:
        failed = Failed(f"{type(error).__name__}: {error}"[:2000])
        ledger.enter_failed(request, failed, self.policy.delay_seconds(request["attempts"] + 1))
