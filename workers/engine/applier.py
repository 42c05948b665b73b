"""The only function that changes state: lock the instances, decide, write, commit.

Tasks, sweeps, the CLI and effects all change state through `apply_partition`. PostgreSQL refuses any other write.
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import structlog
from sqlalchemy import Connection, Engine

from interlock.db.connection import judgement, retryable, transaction
from interlock.db.core import rounds
from interlock.db.core.requests import partition_of
from interlock.db.core.rounds import BATCH, Due
from interlock.db.fast_path import Row
from interlock.workers.engine.answers import TriggerAnswer, answer
from interlock.workers.engine.deprecations import Deprecations
from interlock.workers.engine.locked_instance import LockedInstance, take
from interlock.workers.engine.round_writes import Ledger
from interlock.workers.telemetry.logs import ids, log_context
from interlock.workers.telemetry.tracing import tracing
from interlock.workflows.backoff import full_jitter
from interlock.workflows.catalogue import Catalogue
from interlock.workflows.decide import decide, handed_over, judged
from interlock.workflows.errors import UnknownWorkflow
from interlock.workflows.input.limits import Unreadable
from interlock.workflows.outcomes import Applied, Failed, Waiting

if TYPE_CHECKING:
    from interlock.workers.telemetry.spans import Applying

log = structlog.get_logger()

NAMED = 20  # requests that the log line of a round lists


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How many attempts a failing request has, and how many seconds lie between them."""

    max_attempts: int = 8
    base_seconds: float = 0.5
    cap_seconds: float = 600.0

    def delay_seconds(self, attempts: int) -> float | None:
        """The seconds to wait after `attempts` failed attempts; None when no attempt is left."""
        if attempts >= self.max_attempts:
            return None
        chance = random.random()  # noqa: S311 - jitter, not a secret
        return full_jitter(attempts, base_seconds=self.base_seconds, cap_seconds=self.cap_seconds, chance=chance)


@dataclass(slots=True)
class Round:
    """What committed rounds did: the moves to announce, and the requests and effects now due.

    Attributes:
        taken: how many requests they took.
        requests: these requests, each with its status; `pending`: it was left.
        answers: the outcomes of those that were settled, in words.
        left: some requests were left for the next round, because their guards read data that this round changed.
    """

    taken: int = 0
    requests: dict[str, str] = field(default_factory=dict)
    left: bool = False
    moves: list[tuple[LockedInstance, str]] = field(default_factory=list)
    woken: list[Row] = field(default_factory=list)
    effects_due: list[Row] = field(default_factory=list)
    answers: dict[str, TriggerAnswer] = field(default_factory=dict)
    settled: list[dict[str, Any]] = field(default_factory=list)
    spans: list["Applying"] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def runs(self) -> set[str]:
        """The runs whose scheduler should run, because one of their instances moved."""
        return {run for locked, _ in self.moves if (run := locked.run_id)}

    def report(self) -> None:
        """End the spans of what was applied, and log it, one line for each round. Call it after the commit."""
        for each in self.spans:
            each.end(self.settled)
        for line in self.lines:
            log.info("applied", **line)

    def __iadd__(self, other: "Round") -> "Round":
        self.taken += other.taken
        self.requests |= other.requests
        self.left |= other.left
        self.moves += other.moves
        self.woken += other.woken
        self.effects_due += other.effects_due
        self.answers |= other.answers
        self.settled += other.settled
        self.spans += other.spans
        self.lines += other.lines
        return self


def _unreadable(request: Due) -> str | None:
    """Why a request cannot be decided: its data or its instance's context is unreadable. None for any other request."""
    for name in ("metadata", "context"):
        if isinstance(found := request[name], Unreadable):
            return f"{name} cannot be read: {found.why}"
    return None


def _line(partition: int, due: Sequence[Due], ledger: Ledger) -> dict[str, Any]:
    return {
        "partition": partition,
        "requests": len(due),
        "moves": len(ledger.events),
        "failed": len(ledger.failures),
        "of": [ids(request) for request in due[:NAMED]],
    }


@dataclass(frozen=True, slots=True)
class Applier:
    """Applies triggers, with the database, the definitions known to this process and the retry policy."""

    database: Engine
    catalogue: Catalogue
    policy: RetryPolicy = RetryPolicy()
    deprecations: Deprecations = field(default_factory=Deprecations)

    def apply_partition(self, partition: int, *, limit: int = BATCH) -> Round:
        """Apply the due requests of a partition, oldest first, in one commit.

        Args:
            partition: the partition's number. Its lock keeps every other process from deciding for these instances.
            limit: the most requests to apply.

        Returns:
            What was done; `taken` is 0 when nothing was due.

        Raises:
            DBAPIError: the infrastructure failed. Nothing was written; the same call may be made again.
        """
        try:
            return self._alone(partition, limit)
        except Exception as error:
            if retryable(error):
                raise
            # One request that cannot be written must not hold up its whole partition.
            if judgement(error) is None:
                log.exception("round_failed", partition=partition)
            return self._one_by_one(partition, limit)

    def round(self, connection: Connection, due: Sequence[Due]) -> Round:
        """Apply due requests within the caller's transaction.

        Args:
            connection: the transaction; it holds the locks of the requests' partitions until it ends.
            due: the requests, oldest first, as `rounds.gather` or `rounds.gather_for` locked them in it.

        Raises:
            DBAPIError: PostgreSQL refused a write, or the infrastructure failed. The transaction must be rolled back.
        """
        if not due:
            return Round()
        locked_instances = take(connection, self.catalogue, due)
        spans = at_work.applying(due) if (at_work := tracing()) else None
        ledger = Ledger(traces=spans.traces) if spans else Ledger()
        for request in due:
            with log_context(request):
                self._judge(ledger, locked_instances[request["workflow_id"]], request)
        self.deprecations.refresh(connection)
        partition = partition_of(due[0]["workflow_id"])
        self.deprecations.report(connection, partition, ledger.events, ledger.settled)
        ledger.write(connection)
        settled = {each["seq"]: each for each in ledger.settled}
        left = any(locked.halted and locked.id not in ledger.failures for locked in locked_instances.values())
        return Round(
            taken=len(due),
            requests={
                each["request_id"]: settled[each["seq"]]["status"] if each["seq"] in settled else "pending"
                for each in due
            },
            left=left,
            moves=ledger.announced,
            woken=ledger.woken,
            effects_due=ledger.effects_due,
            answers={each["request_id"]: answer(each, row) for each in due if (row := settled.get(each["seq"]))},
            settled=ledger.settled,
            spans=[spans] if spans else [],
            lines=[_line(partition, due, ledger)],
        )

    def apply_for(self, connection: Connection, instance_ids: Collection[UUID]) -> Round:
        """Apply what is due for some instances within the caller's transaction, until nothing of it is left.

        Raises:
            DBAPIError: as `round`.
        """
        whole = Round()
        while (done := self.round(connection, rounds.gather_for(connection, instance_ids))).taken:
            whole += done
        return whole

    def _alone(self, partition: int, limit: int) -> Round:
        with transaction(self.database) as connection:
            return self.round(connection, rounds.gather(connection, partition, limit=limit))

    def _judge(self, ledger: Ledger, locked: LockedInstance, request: Due) -> None:
        if message := _unreadable(request):  # a retry would fail too, so the request is dead and those behind it go on
            ledger.enter_unreadable(request, message)
            return
        if request["handover_id"] is not None:
            ledger.enter_refused(request, handed_over(locked.state, request["handover_id"]))
            return
        locked.halted |= locked.is_stale(request["trigger"]) or locked.is_unsettled(
            request, ledger.relinked, ledger.moved
        )
        if locked.halted:
            return  # a request in retry, or left for the next round, holds up those behind it: they stay pending
        try:
            outcome = decide(locked.definition, locked.case(request))
        except Exception as error:
            log.exception("guard_failed", trigger=request["trigger"])
            locked.halted = True
            self._fail(ledger, request, error)
            return
        if isinstance(outcome, Applied):
            ledger.enter_applied(locked, request, outcome)
        elif isinstance(outcome, Waiting):
            ledger.enter_waiting(locked, request, outcome)
        else:
            ledger.enter_refused(request, outcome)

    def _one_by_one(self, partition: int, limit: int) -> Round:
        with transaction(self.database) as connection:
            due = rounds.gather(connection, partition, limit=limit)
        done = Round()
        for instance_id in (row["workflow_id"] for row in due):  # one by one, so only the faulty request fails
            done += self.apply_first(instance_id)
        return done

    def apply_first(self, instance_id: UUID) -> Round:
        """Apply the oldest due request of an instance. If it cannot be written, the request fails by itself.

        What PostgreSQL's own rules refuse is rejected, as by a guard; anything else is a fault, and tried again.

        Raises:
            DBAPIError: the infrastructure failed; nothing was written.
        """
        tried: Sequence[Due] = ()
        try:
            with transaction(self.database) as connection:
                tried = rounds.gather_for(connection, [instance_id], limit=1)
                return self.round(connection, tried)
        except UnknownWorkflow as error:  # leave it to a process of a newer release, which knows it
            log.warning("definition_unknown", instance=str(instance_id), error=str(error))
            return Round()
        except Exception as error:
            if retryable(error):
                raise
            failed = error
        try:
            self._fail_first(tried, failed)
        except Exception as error:  # the failure cannot be written either: the partition's other requests go on
            if retryable(error):
                raise
            log.exception("failure_not_recorded", instance=str(instance_id))
            return Round()
        return Round(taken=1)

    def _fail_first(self, tried: Sequence[Due], error: Exception) -> None:
        """Settle the one request that was tried; another process may have done so since, and taken the next one."""
        with transaction(self.database) as connection:
            ledger = Ledger()
            for each in tried:
                for request in rounds.gather_for(connection, [each["workflow_id"]], limit=1):
                    if request["seq"] == each["seq"]:
                        self._settle(ledger, request, error)
            ledger.write(connection)

    def _settle(self, ledger: Ledger, request: Due, error: Exception) -> None:
        if (why := judgement(error)) is None:
            self._fail(ledger, request, error)
            return
        log.warning("refused_by_postgresql", request_id=request["request_id"], why=why)
        definition = self.catalogue.get(request["workflow_type"], request["definition_version"])
        ledger.enter_refused(request, judged(definition, request["current_state"], why))

    def _fail(self, ledger: Ledger, request: Due, error: Exception) -> None:
        failed = Failed(f"{type(error).__name__}: {error}"[:2000])
        ledger.enter_failed(request, failed, self.policy.delay_seconds(request["attempts"] + 1))
