"""A workflow definition: immutable data with a semantic version. Nothing here runs; `workflows.decide` does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

from workflows.backoff import Growth
from workflows.case import Case
from workflows.errors import UnknownTrigger

Severity = Literal["info", "warning", "error", "critical"]
Back = Literal["retry", "blocked", "rework"]
Fact = Literal["linked", "votes", "row"]

HOUR_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Guard:
    """A named condition of a transition.

    One that `bounds` holds only so many times for an instance: a loop through it comes to an end.

    `holds` must be pure. `says` is what an operator reads when it is false. A guard that is false refuses the
    trigger; with `wait=True` it holds it instead, until others of its kind complete it (a vote below its quorum).
    `needs` names the facts of a `Case` that have to be looked up for it.
    """

    name: str
    holds: Callable[[Case], bool]
    says: str
    wait: bool = False
    needs: frozenset[Fact] = frozenset()
    bounds: bool = False


@dataclass(frozen=True, slots=True)
class FollowUp:
    """Fire `trigger` on every instance linked as `role`, in the same commit as the move."""

    role: str
    trigger: str


@dataclass(frozen=True, slots=True)
class Effect:
    """Something done to the world after the commit, by `workers.effects`, under a lease.

    `done` and `failed` name the triggers that tell the outcome to the instance; None where nobody waits for it.
    `exclusive` names a field of the instance's context (`id`: the instance itself); of effects with the same value
    there, never two run at once.
    """

    name: str
    done: str | None = None
    failed: str | None = None
    exclusive: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalPoint:
    """The trigger is held until `quorum` people, none of them the author, approve (ADR-010, approval points)."""

    quorum: int = 1
    deciders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deadline:
    """A state left alone for `seconds` gets `trigger`.

    `context_key` names the field of an instance's context that says its own seconds; `seconds` is then what those
    that do not say get.
    """

    seconds: float
    trigger: str
    context_key: str | None = None
    growth: Growth | None = None

    def resolved(self, context: Mapping[str, Any], row: Mapping[str, Any] | None = None) -> "Deadline":
        """This deadline with the seconds of one instance.

        Args:
            context: the instance's own data.
            row: its typed row as before the move that enters the state; read only where the deadline grows.
        """
        said = context.get(self.context_key) if self.context_key else None
        if self.growth:
            seconds = self.growth.seconds(self.seconds, said or {}, row or {})
        else:
            seconds = self.seconds if said is None else float(said)
        return self if seconds == self.seconds else replace(self, seconds=seconds)


@dataclass(frozen=True, slots=True)
class Link:
    """How instances of this type name another: `context[context_key]` holds its entity id (or UUID).

    The other side sees this instance under `inverse`.
    """

    role: str
    type: str
    context_key: str
    inverse: str


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an instance's context that its guards rely on, checked when it is created.

    `holds` is pure; `says` completes "must be …". One that is not `required` may be missing.
    """

    name: str
    holds: Callable[[object], bool]
    says: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of a machine's table; several sources where the same rule holds for each of them.

    An `exceptional` one may leave a terminal state (SSOT 8.2.3); its guards say under whose authority. One that goes
    `back` to an earlier level of the definition's order says why it may (SSOT 8.1.2). `deprecated` says what to fire
    instead; it changes nothing but that whoever fires it is told.
    """

    trigger: str
    sources: tuple[str, ...]
    dest: str
    when: tuple[Guard, ...] = ()
    then: tuple[FollowUp, ...] = ()
    effects: tuple[Effect, ...] = ()
    approval: ApprovalPoint | None = None
    settles: Literal["granted", "refused"] | None = None
    severity: Severity = "info"
    exceptional: bool = False
    back: Back | None = None
    deprecated: str = ""


def T(
    trigger: str,
    sources: str | tuple[str, ...],
    dest: str,
    *,
    when: tuple[Guard, ...] = (),
    then: tuple[FollowUp, ...] = (),
    effects: tuple[Effect, ...] = (),
    approval: ApprovalPoint | None = None,
    settles: Literal["granted", "refused"] | None = None,
    severity: Severity = "info",
    exceptional: bool = False,
    back: Back | None = None,
    deprecated: str = "",
) -> Transition:
    """Declare a transition. Sources are listed, never `*`: that would include the destination and terminal states.

    Args:
        trigger: an imperative or a past fact (`submit_pr`, `tests_pass`).
        sources: the state or states it leaves.
        dest: the state it enters.
        when: guards, all of which must hold.
        then: triggers fired on linked instances in the same commit.
        effects: what is done to the world after the commit.
        approval: hold the trigger until this approval is given.
        settles: this move gives or refuses the approval that the instance stands for.
        severity: of the event (SSOT 7.2.2).
        exceptional: it may leave a terminal state, and must be guarded (SSOT 8.2.3).
        back: why it may lead to an earlier level (SSOT 8.1.2); a `retry` must be bounded by a guard.
        deprecated: why it is not to be fired any more, and what instead (SSOT 9.1.3).
    """
    listed = (sources,) if isinstance(sources, str) else tuple(sources)
    return Transition(
        trigger, listed, dest, when, then, effects, approval, settles, severity, exceptional, back, deprecated
    )


@dataclass(frozen=True, eq=False)  # one object per version: identity is equality, and hashing is free
class Definition:
    """A machine: its states in reading order, where it begins and ends, and every legal move.

    `required_metadata` names what each of its events must say (SSOT 7.2.3); whoever writes the event fills it in.
    `order` has the states in levels, from first to last: a move to an earlier one must say why it goes back (SSOT 8.1).
    `deprecated` names states that are not to be entered any more, each with why and what instead. Neither is behaviour:
    both stay out of the checksum.
    """

    type: str
    version: str
    summary: str
    states: tuple[str, ...]
    initial: str
    terminal: frozenset[str]
    transitions: tuple[Transition, ...]
    deadlines: Mapping[str, Deadline] = field(default_factory=lambda: MappingProxyType({}))
    links: tuple[Link, ...] = ()
    fields: tuple[Field, ...] = ()
    birth_effects: tuple[Effect, ...] = ()
    required_metadata: tuple[str, ...] = ()
    order: tuple[tuple[str, ...], ...] = ()
    deprecated: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def triggers(self) -> tuple[str, ...]:
        """Every trigger's name, in the order declared."""
        return tuple(dict.fromkeys(move.trigger for move in self.transitions))

    @cached_property
    def moves(self) -> Mapping[tuple[str, str], tuple[Transition, ...]]:
        """(trigger, source) -> the transitions that may serve it, in the order declared."""
        table: dict[tuple[str, str], tuple[Transition, ...]] = {}
        for move in self.transitions:
            for source in move.sources:
                table[move.trigger, source] = (*table.get((move.trigger, source), ()), move)
        return table

    @cached_property
    def needs(self) -> Mapping[str, frozenset[Fact]]:
        """Trigger -> the facts that deciding it takes."""
        wanted: dict[str, frozenset[Fact]] = {trigger: frozenset() for trigger in self.triggers}
        for move in self.transitions:
            votes: frozenset[Fact] = frozenset({"votes"}) if move.approval else frozenset()
            row: frozenset[Fact] = frozenset({"row"}) if self._grows(move.dest) else frozenset()
            wanted[move.trigger] = wanted[move.trigger].union(votes, row, *(guard.needs for guard in move.when))
        return wanted

    def _grows(self, state: str) -> bool:
        return state in self.deadlines and self.deadlines[state].growth is not None

    @cached_property
    def voting_states(self) -> frozenset[str]:
        """The states in which a trigger may be held for more votes like it."""
        return frozenset(
            source for move in self.transitions for source in move.sources if any(guard.wait for guard in move.when)
        )

    def legal(self, state: str) -> tuple[str, ...]:
        """The triggers that a transition out of `state` answers to, guards aside."""
        return tuple(trigger for trigger in self.triggers if (trigger, state) in self.moves)

    def wrong_fields(self, context: Mapping[str, object]) -> tuple[str, ...]:
        """What is wrong with a context under which an instance is to be created, a phrase for each field."""
        return tuple(
            f"{each.name} must be {each.says}"
            for each in self.fields
            if (not each.holds(context[each.name]) if each.name in context else each.required)
        )

    def require_trigger(self, trigger: str) -> None:
        """Raise `UnknownTrigger`, naming those there are, unless some state answers to `trigger`."""
        if trigger not in self.triggers:
            raise UnknownTrigger(
                f"{self.type} {self.version} has no trigger {trigger!r}. It has: {', '.join(self.triggers)}."
            )
