"""The rows that a round's outcomes lead to, collected and then written in one transaction."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any
from uuid import UUID

from sqlalchemy import Connection
from uuid_utils.compat import uuid7

from interlock.db.core import approvals, counters, effects, instances, requests, rounds
from interlock.db.core.rounds import Due
from interlock.db.fast_path import Row
from interlock.workers.engine import creation
from interlock.workers.engine.creation import intent, timer
from interlock.workers.engine.locked_instance import LockedInstance
from interlock.workflows.approvals import may_approve, terms
from interlock.workflows.definition import ApprovalPoint, Relink
from interlock.workflows.errors import InterlockError
from interlock.workflows.guard_context import Linked
from interlock.workflows.input.names import likeness
from interlock.workflows.outcomes import Applied, Failed, Rejected, Superseded, Waiting


class LostRace(InterlockError):
    """Rows changed under the partition's lock, by a write outside the engine. The round is rolled back and retried."""


# What an approval was about, and who could decide it: with its decision, this is kept in history.
TERMS = ("subject", "subject_id", "subject_version", "trigger", "request_id", "author", "quorum", "deciders")


@dataclass(slots=True)
class Ledger:
    """The rows of a round. Each `enter_*` method adds the rows of one outcome; `write` writes all of them."""

    moved: dict[UUID, LockedInstance] = field(default_factory=dict)
    announced: list[tuple[LockedInstance, str]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    settled: list[dict[str, Any]] = field(default_factory=list)
    timers: list[dict[str, Any]] = field(default_factory=list)
    follow_ups: list[dict[str, Any]] = field(default_factory=list)
    wanted_effects: list[dict[str, Any]] = field(default_factory=list)
    approvals: list[creation.Birth] = field(default_factory=list)
    released: list[dict[str, Any]] = field(default_factory=list)
    relinks: list[dict[str, Any]] = field(default_factory=list)
    relinked: set[UUID] = field(default_factory=set)
    failures: dict[UUID, str] = field(default_factory=dict)
    happened: Counter[counters.Series] = field(default_factory=Counter)
    traces: Mapping[int, str] = field(default_factory=dict)
    woken: list[Row] = field(default_factory=list)
    effects_due: list[Row] = field(default_factory=list)

    def enter_applied(self, locked: LockedInstance, request: Due, outcome: Applied) -> None:
        """Add a move: its event, the request's result, and the follow-ups, effects, deadline and releases it causes."""
        move, source = outcome.transition, locked.state
        metadata = _event_metadata(locked, request, outcome)
        if move.relink:
            metadata["relinked"] = self._relink(locked, move.relink, locked.named.get(request["seq"]))
        locked.state, locked.version = outcome.dest, locked.version + 1
        self.moved[locked.id] = locked
        self.announced.append((locked, outcome.dest))
        event_id, trace = str(uuid7()), self.traces.get(request["seq"])
        result: dict[str, Any] = {"from": source, "to": outcome.dest, "seq": locked.version, "event_id": event_id}
        if outcome.passed_over is not None:
            result["passed_over"] = list(outcome.passed_over)
        self._settle(request, "applied", result)
        self.events.append(
            {
                "id": event_id,
                "workflow_id": locked.id,
                "seq": locked.version,
                "workflow_type": locked.type,
                "definition_version": locked.definition.version,
                "from_state": source,
                "to_state": outcome.dest,
                "trigger": move.trigger,
                "triggered_by": request["triggered_by"],
                "request_id": request["request_id"],
                "severity": outcome.severity,
                "metadata": metadata,
            }
        )
        self.follow_ups += (
            {
                "event_id": event_id,
                "workflow_id": locked.id,
                "role": follow_up.role,
                "trigger": follow_up.trigger,
                "triggered_by": request["triggered_by"],
                "trace": trace,
            }
            for follow_up in move.then
        )
        self.wanted_effects += (
            intent(
                effect,
                workflow_id=locked.id,
                version=locked.version,
                metadata={
                    "type": locked.type,
                    "entity_id": locked.entity_id,
                    "state": locked.state,
                    "trigger": move.trigger,
                    "by": request["triggered_by"],
                    "context": locked.context,
                },
                limit_key=limit_key,
                trace=trace,
            )
            for effect, limit_key in zip(move.effects, outcome.limit_keys, strict=True)
        )
        if outcome.deadline:
            stays_due = locked.timer_due if outcome.dest == source else None
            self.timers.append(timer(locked.id, locked.version, outcome.deadline, trace=trace, due=stays_due))
        locked.note_move(source, request)
        if move.settles:
            reason = {
                "code": "approval",
                "message": f"the approval {locked.entity_id!r} was {outcome.dest}",
            }
            self.released.append({"approval_id": locked.id, "granted": move.settles == "granted", "reason": reason})

    def _relink(self, locked: LockedInstance, relink: Relink, to: Linked | None) -> dict[str, Any]:
        """Add the change of a link; returns what its event says of it."""
        link, left = locked.definition.link(relink.role), locked.linked.get(relink.role, ())
        target = None if to is None else to.id
        self.relinks.append({"source_id": locked.id, "role": link.role, "inverse": link.inverse, "target_id": target})
        self.relinked |= {locked.id, *(each.id for each in (*left, to) if each is not None and each.id is not None)}
        return {
            "role": link.role,
            "from": [_reference(each) for each in left],
            "to": None if to is None else _reference(to),
        }

    def enter_refused(self, request: Due, outcome: Rejected | Superseded) -> None:
        """Add a rejected or superseded request: no move; the request records the reason."""
        if isinstance(outcome, Rejected):
            self.happened[counters.FAILED_TRANSITIONS, (request["workflow_type"], outcome.reason["code"])] += 1
        self._settle(request, "rejected" if isinstance(outcome, Rejected) else "superseded", outcome.reason)

    def enter_waiting(self, locked: LockedInstance, request: Due, outcome: Waiting) -> None:
        """Add a request that waits for an approval, which is created in the same commit."""
        locked.held.add(request["trigger"])
        approval = _approval(locked, request, outcome.approval)
        self.approvals.append(approval)
        name = f"approval/{approval.entity_id}"
        message = f"{outcome.reason['message']}: {name}"
        reason = dict(outcome.reason) | {"approval": name, "approval_id": str(approval.id), "message": message}
        self._settle(request, "waiting", reason, held_by=approval.id)

    def enter_failed(self, request: Due, outcome: Failed, delay_seconds: float | None) -> None:
        """Add a fault: retry after `delay_seconds`; if None, the request is dead until an operator redrives it."""
        self.failures[request["workflow_id"]] = outcome.error
        status = "dead" if delay_seconds is None else "scheduled"
        if status == "dead":
            self.happened[counters.FAILED_TRANSITIONS, (request["workflow_type"], "dead")] += 1
        else:
            self.happened[counters.RETRIES, ("request", request["workflow_type"])] += 1
        self._settle(request, status, None, error=outcome.error, delay_seconds=delay_seconds)

    def enter_unreadable(self, request: Due, error: str) -> None:
        """Add a request whose data cannot be read. It is dead at once, since a retry would fail too."""
        self.failures[request["workflow_id"]] = error
        self.happened[counters.FAILED_TRANSITIONS, (request["workflow_type"], "dead")] += 1
        self._settle(request, "dead", {"code": requests.UNREADABLE, "message": error}, error=error)

    def write(self, connection: Connection) -> None:
        """Write all rows of the round, in the caller's transaction.

        Raises:
            LostRace: a row changed after the partition was locked.
        """
        moves = [
            {"id": each.id, "seen": each.locked_version, "version": each.version, "state": each.state}
            for each in self.moved.values()
        ]
        self.effects_due += creation.deliver(connection, self.approvals).effects_due
        written = rounds.write(connection, moves=moves, events=self.events, settled=self.settled)
        if written != rounds.Written(len(moves), len(self.events), len(self.settled)):
            raise LostRace(f"rows changed while the engine had their partition locked; written: {written}")
        for each in self.relinks:
            instances.relink(connection, each)
        requests.accept(connection, self.timers)
        self.woken += requests.follow_up(connection, self.follow_ups)
        if self.released:
            self.woken += self._let_go(approvals.release(connection, self.released))
        self.effects_due += effects.intend(connection, self.wanted_effects)
        instances.note_failure(connection, self.failures)
        counters.note(connection, self.happened)

    def _let_go(self, released: list[Row]) -> list[Row]:
        refused = (each["workflow_type"] for each in released if each["status"] == "rejected")
        self.happened.update((counters.FAILED_TRANSITIONS, (type_, "approval")) for type_ in refused)
        return released

    def _settle(
        self,
        request: Due,
        status: str,
        result: Mapping[str, Any] | None,
        *,
        error: str | None = None,
        delay_seconds: float | None = None,
        held_by: UUID | None = None,
    ) -> None:
        self.settled.append(
            {
                "seq": request["seq"],
                "status": status,
                "result": result,
                "error": error,
                "delay_seconds": delay_seconds,
                "held_by": held_by,
            }
        )


def _event_metadata(locked: LockedInstance, request: Due, outcome: Applied) -> dict[str, Any]:
    """The event's metadata: the request's, what an override passed over, and who decided an approval (APPROVAL-6)."""
    found: dict[str, Any] = dict(request["metadata"])
    if outcome.passed_over is not None:
        found["override"] = {**found["override"], "passed_over": list(outcome.passed_over)}
    if outcome.transition.settles:
        found["terms"] = {name: locked.context[name] for name in TERMS if name in locked.context}
    if outcome.transition.settles == "granted":
        own = {request["triggered_by"]} if outcome.passed_over is None else set()  # an override is no vote
        voters = locked.votes.get(request["trigger"], set()) | own
        found["votes"] = sorted(who for who in voters if may_approve(locked.context, who))
    if approval := locked.approved_by.get(request["seq"]):
        found["approval"] = approval
    return found


def _reference(linked: Linked) -> dict[str, str]:
    return {"id": str(linked.id), "entity_id": linked.entity_id}


def _approval(locked: LockedInstance, request: Due, point: ApprovalPoint) -> creation.Birth:
    return creation.Birth(
        definition=locked.approvals,
        # Ends at random, or somebody could create an instance of that name first.
        entity_id=f"{likeness(locked.entity_id[:60])}:{request['trigger'][:24]}:{token_hex(6)}",
        project=locked.project,
        created_by=request["triggered_by"],
        context=terms(
            f"{locked.type}/{locked.entity_id}",
            locked.version,
            trigger=request["trigger"],
            by=request["triggered_by"],
            context=locked.context,
            point=point,
        )
        | {"subject_id": str(locked.id), "request_id": request["request_id"]},
    )
