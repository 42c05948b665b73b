"""What a workflow of the Temporal form remembers of its instance: its state, votes, deadline and held triggers."""

from typing import Any

from interlock.workflows.approvals import terms
from interlock.workflows.authority import refusal
from interlock.workflows.definition import ApprovalPoint, Definition
from interlock.workflows.forms.parts import called
from interlock.workflows.forms.temporal_values import EffectWanted, FactsFound, TemporalFiring, TemporalStart
from interlock.workflows.guard_context import Case
from interlock.workflows.outcomes import Applied, Rejected

Answer = dict[str, Any]


class TemporalState:
    """An instance on Temporal.

    Attributes:
        id: of its workflow.
        definition: its machine.
        context, state, version: as those of an instance.
        votes: trigger -> who has moved it with that trigger since it entered its state.
        history: of its life before this workflow.
        due_at: when the deadline of its state passes, in seconds since 1970; None: no deadline runs.
        held: (trigger, version) of what waits for an approval.
        settled: whether it has granted or refused the approval that it stands for.
        last: what became of the last trigger that was decided.
    """

    def __init__(self, definition: Definition, start: TemporalStart, id_: str, now: float) -> None:
        """The instance of a workflow that starts `now`, in seconds since 1970."""
        self.id = id_
        self.definition = definition
        self.context = start.context
        self.state = start.state or definition.initial
        self.version = start.version
        self.votes = {trigger: set(names) for trigger, names in start.votes.items()}
        self.due_at = start.due_at if start.due_in is None else now + start.due_in
        self.history = start.history
        self.held: set[tuple[str, int]] = set()
        self.settled: str | None = None
        self.last: Answer = {}
        deadline = definition.deadlines.get(self.state)
        if deadline and start.state is None:
            self.due_at = now + deadline.resolved(self.context, {}).seconds

    @property
    def legal(self) -> list[str]:
        """The triggers that have a move out of its state."""
        return list(self.definition.legal(self.state))

    def refusal(self, firing: TemporalFiring) -> Rejected | None:
        """Why nobody, or not whoever fires it, may fire a trigger; None: he may."""
        if firing.trigger not in self.definition.triggers:
            return self._rejected("unknown_trigger", f"there is no trigger {firing.trigger!r}")
        allowed = self.definition.authorities[firing.trigger]
        if firing.authority in allowed or "anyone" in allowed:
            return None
        what = f"{firing.trigger} of {self.id} is not {firing.by}'s to fire"
        return self._rejected("not_yours", refusal(what, allowed))

    def _rejected(self, code: str, message: str) -> Rejected:
        return Rejected({"code": code, "message": message, "state": self.state, "legal": self.legal})

    def case(self, firing: TemporalFiring, facts: FactsFound, bound_version: int | None, granted: bool) -> Case:
        """What `decide` decides for a trigger."""
        return Case(
            state=self.state,
            version=self.version,
            context=self.context,
            trigger=firing.trigger,
            by=firing.by,
            metadata=firing.data,
            bound_version=bound_version,
            if_version=firing.if_version if bound_version is None else None,
            granted=granted,
            linked={role: tuple(each.as_linked() for each in linked) for role, linked in facts.linked.items()},
            named=facts.named.as_linked() if facts.named else None,
            votes=frozenset(self.votes.get(firing.trigger, ())),
            held=(firing.trigger, self.version) in self.held,
            row=facts.row,
        )

    def enter(self, firing: TemporalFiring, outcome: Applied, now: float) -> Answer:
        """Make a move; a deadline that runs goes on while the instance stays in its state."""
        source = self.state
        self.state, self.version = outcome.dest, self.version + 1
        if self.state != source:
            self.votes.clear()
            self.due_at = None
        elif "votes" in self.definition.needs[firing.trigger]:
            self.votes.setdefault(firing.trigger, set()).add(firing.by)
        if outcome.deadline and self.due_at is None:
            self.due_at = now + outcome.deadline.seconds
        self.settled = outcome.transition.settles or self.settled
        self.last = {"status": "applied", "from": source, "to": self.state, "seq": self.version}
        return self.last

    def hold(self, firing: TemporalFiring, point: ApprovalPoint) -> tuple[str, Answer]:
        """Hold a trigger; returns the id of the approval's workflow, and its context."""
        self.held.add((firing.trigger, self.version))
        child = f"{self.id}:{firing.trigger}:{self.version}"
        self.last = {"status": "waiting", "code": "approval", "state": self.state, "approval": child}
        return child, terms(
            self.id, self.version, trigger=firing.trigger, by=firing.by, context=self.context, point=point
        )

    def effect(self, name: str, number: int, firing: TemporalFiring, source: str | None) -> EffectWanted:
        """What the activity of an effect is called with; `number` tells the effects of a move apart."""
        return EffectWanted(
            workflow_id=self.id,
            definition=called(self.definition),
            name=name,
            idempotency_key=f"{self.id}:{self.version}:{number}",
            trigger=firing.trigger,
            by=firing.by,
            data=firing.data,
            from_state=source,
            state=self.state,
            version=self.version,
            context=self.context,
        )

    def shown(self) -> Answer:
        """The instance, for people and programs."""
        held = [{"trigger": trigger, "version": version} for trigger, version in sorted(self.held)]
        return {
            "state": self.state,
            "version": self.version,
            "due_at": self.due_at,
            "held": held,
            "last": self.last,
            "legal": self.legal,
        }

    def snapshot(self) -> TemporalStart:
        """The input of a new run that goes on here; nothing may be held."""
        votes = {trigger: sorted(names) for trigger, names in self.votes.items()}
        return TemporalStart(self.context, "system", self.state, self.version, votes, self.due_at, history=self.history)
