"""What one round of deciding leads to, gathered as rows and written in one transaction."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping
from uuid_utils.compat import uuid7

from db import effects, instances, metrics, requests, rounds
from db.rounds import Due
from workers import births
from workers.births import intent, timer
from workers.standing import Standing
from workflows.definition import ApprovalPoint
from workflows.errors import InterlockError
from workflows.outcomes import Applied, Failed, Rejected, Superseded, Waiting


class LostRace(InterlockError):
    """Rows changed under the lane's lock, by something that went around the engine. The round is undone and retried."""


@dataclass(slots=True)
class Ledger:
    """The rows of a round. `enter_*` adds one outcome's; `write` writes them all."""

    moved: dict[UUID, Standing] = field(default_factory=dict)
    announced: list[tuple[Standing, str]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    settled: list[dict[str, Any]] = field(default_factory=list)
    timers: list[dict[str, Any]] = field(default_factory=list)
    follow_ups: list[dict[str, Any]] = field(default_factory=list)
    wanted_effects: list[dict[str, Any]] = field(default_factory=list)
    approvals: list[births.Birth] = field(default_factory=list)
    released: list[dict[str, Any]] = field(default_factory=list)
    closed: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[UUID, str] = field(default_factory=dict)
    happened: Counter[metrics.Series] = field(default_factory=Counter)
    traces: Mapping[int, str] = field(default_factory=dict)
    woken: list[RowMapping] = field(default_factory=list)
    effects_due: list[RowMapping] = field(default_factory=list)

    def enter_applied(self, standing: Standing, request: Due, outcome: Applied) -> None:
        """One move: its event, the request's response, and everything the transition says should follow."""
        move, source = outcome.transition, standing.state
        standing.state, standing.version = outcome.dest, standing.version + 1
        self.moved[standing.id] = standing
        self.announced.append((standing, outcome.dest))
        event_id, trace = str(uuid7()), self.traces.get(request["seq"])
        result: dict[str, Any] = {"from": source, "to": outcome.dest, "seq": standing.version, "event_id": event_id}
        if outcome.passed_over is not None:
            result["passed_over"] = list(outcome.passed_over)
        self._settle(request, "applied", result)
        self.events.append(
            {
                "id": event_id,
                "workflow_id": standing.id,
                "seq": standing.version,
                "workflow_type": standing.type,
                "definition_version": standing.definition.version,
                "from_state": source,
                "to_state": outcome.dest,
                "trigger": move.trigger,
                "triggered_by": request["triggered_by"],
                "request_id": request["request_id"],
                "severity": outcome.severity,
                "metadata": _told(request, outcome),
            }
        )
        self.follow_ups += (
            {
                "event_id": event_id,
                "workflow_id": standing.id,
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
                workflow_id=standing.id,
                version=standing.version,
                says={
                    "type": standing.type,
                    "entity_id": standing.entity_id,
                    "state": standing.state,
                    "trigger": move.trigger,
                    "by": request["triggered_by"],
                    "context": standing.context,
                },
                trace=trace,
            )
            for effect in move.effects
        )
        if outcome.deadline:
            self.timers.append(timer(standing.id, standing.version, outcome.deadline, trace=trace))
        if source in standing.definition.voting_states:
            self.closed.append({"workflow_id": standing.id, "trigger": move.trigger, "result": result})
        if move.settles:
            reason = {
                "code": "approval",
                "message": f"the approval {standing.entity_id!r} was {outcome.dest}",
            }
            self.released.append({"approval_id": standing.id, "granted": move.settles == "granted", "reason": reason})

    def enter_refused(self, request: Due, outcome: Rejected | Superseded) -> None:
        """No move; the request records why."""
        if isinstance(outcome, Rejected):
            self.happened[metrics.FAILED_TRANSITIONS, (request["workflow_type"], outcome.reason["code"])] += 1
        self._settle(request, "rejected" if isinstance(outcome, Rejected) else "superseded", outcome.reason)

    def enter_waiting(self, standing: Standing, request: Due, outcome: Waiting) -> None:
        """Hold the request; where it waits for an approval, that approval is born in this commit."""
        standing.votes.setdefault(request["trigger"], set()).add(request["triggered_by"])
        if outcome.approval is None:
            self._settle(request, "waiting", outcome.reason)
            return
        approval = _approval(standing, request, outcome.approval)
        self.approvals.append(approval)
        name = f"approval/{approval.entity_id}"
        reason = dict(outcome.reason) | {"approval": name, "message": f"{outcome.reason['message']}: {name}"}
        self._settle(request, "waiting", reason, held_by=approval.id)

    def enter_failed(self, request: Due, outcome: Failed, delay_seconds: float | None) -> None:
        """A fault: try again after the delay, or (None: out of attempts) leave it dead for an operator to redrive."""
        self.failures[request["workflow_id"]] = outcome.error
        status = "dead" if delay_seconds is None else "scheduled"
        if status == "dead":
            self.happened[metrics.FAILED_TRANSITIONS, (request["workflow_type"], "dead")] += 1
        else:
            self.happened[metrics.RETRIES, ("request", request["workflow_type"])] += 1
        self._settle(request, status, None, error=outcome.error, delay_seconds=delay_seconds)

    def write(self, connection: Connection) -> None:
        """Write the round. Everything or nothing: the caller's transaction decides.

        Raises:
            LostRace: a row was not as it was when the lane was locked.
        """
        moves = [
            {"id": each.id, "seen": each.seen, "version": each.version, "state": each.state}
            for each in self.moved.values()
        ]
        self.effects_due += births.deliver(connection, self.approvals).effects_due
        written = rounds.write(connection, moves=moves, events=self.events, settled=self.settled)
        if written != rounds.Written(len(moves), len(self.events), len(self.settled)):
            raise LostRace(f"something went around the engine: {written}")
        requests.close_votes(connection, self.closed)
        requests.accept(connection, self.timers)
        self.woken += requests.follow_up(connection, self.follow_ups)
        self.woken += self._let_go(requests.release(connection, self.released))
        self.effects_due += effects.intend(connection, self.wanted_effects)
        instances.note_failure(connection, self.failures)
        metrics.note(connection, self.happened)

    def _let_go(self, released: Sequence[RowMapping]) -> Sequence[RowMapping]:
        refused = (each["workflow_type"] for each in released if each["status"] == "rejected")
        self.happened.update((metrics.FAILED_TRANSITIONS, (type_, "approval")) for type_ in refused)
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


def _told(request: Due, outcome: Applied) -> Mapping[str, Any]:
    """What the event says: what the request said, and of an override also what it did not ask."""
    said: Mapping[str, Any] = request["metadata"]
    if outcome.passed_over is None:
        return said
    return {**said, "override": {**said["override"], "passed_over": list(outcome.passed_over)}}


def _approval(standing: Standing, request: Due, point: ApprovalPoint) -> births.Birth:
    author = standing.context.get("author", request["triggered_by"])
    return births.Birth(
        definition=standing.approvals,
        entity_id=f"{standing.entity_id[:60]}:{request['trigger'][:24]}:{request['seq']}",
        project_id=standing.project_id,
        created_by=request["triggered_by"],
        context={
            "subject": f"{standing.type}/{standing.entity_id}",
            "subject_id": str(standing.id),
            "trigger": request["trigger"],
            "request_id": request["request_id"],
            "requested_by": request["triggered_by"],
            "author": author,
            "quorum": point.quorum,
            "deciders": list(point.deciders),
        },
    )
