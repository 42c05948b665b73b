"""A workflow definition: immutable data with a semantic version. `workflows.decide` evaluates it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Literal, get_args

from pydantic import BaseModel

from interlock.workflows import typed
from interlock.workflows.authority import refusal
from interlock.workflows.backoff import Growth
from interlock.workflows.errors import BadInput, InvalidDefinition, NotYours, UnknownTrigger, WrongData
from interlock.workflows.faults import Fault, made_at
from interlock.workflows.guard_context import Case
from interlock.workflows.spelling import meant

Severity = Literal["info", "warning", "error", "critical"]
Back = Literal["retry", "blocked", "rework"]
Fact = Literal["linked", "named", "votes", "held", "row", "timer"]
Authority = Literal["anyone", "holder", "effect", "machinery", "decider", "operator"]

AUTHORITIES: tuple[Authority, ...] = get_args(Authority)
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
BY_NAME: frozenset[Authority] = frozenset({"anyone", "decider", "operator"})  # the name of who fires it is enough

HOUR_SECONDS = 3600.0
MOST_NAMED = 10  # of what a guard misses
MOST_COMPARED = 100  # keys of a context, and characters of each, that are compared with the declared ones
ALIKE = 0.82  # of a key and a declared one: a letter more, less, other or elsewhere; not `sprint` and `sprint_id`


@dataclass(frozen=True, slots=True)
class Guard:
    """A named condition of a transition.

    Attributes:
        name: what diagrams and events call it: at most 100 letters, digits and `_`, the first a letter.
        holds: a pure function of a `Case`: the instance, the trigger, who fired it with what data, the facts needed. If
            its definition names models, `Case[Context, Data]` has them as `context` and `metadata`.
        description: what an operator reads when it is false.
        needs: the facts of a `Case` that have to be looked up for it: `linked`, `named`, `votes`, `row`.
        bounds: it holds a limited number of times for an instance, so a loop through it ends.
        missing: a pure function of a `Case`: what makes it false, by name. It is shown behind the description.
        roles: in which the instances are linked that it reads, so that no others are looked up; empty: in all.
    """

    name: str
    holds: Callable[[Case[Any, Any]], bool]
    description: str
    needs: frozenset[Fact] = frozenset()
    bounds: bool = False
    missing: Callable[[Case[Any, Any]], Sequence[str]] | None = None
    roles: tuple[str, ...] = ()

    def explanation(self, case: Case) -> str:
        """The description, and what is missing in this case, at most ten by name; of other projects none by name."""
        if self.missing is None or not (names := self.missing(case.told())):
            return self.description
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return f"{self.description}: {', '.join(names[:MOST_NAMED])}{more}"


@dataclass(frozen=True, slots=True)
class FollowUp:
    """Fire `trigger` on every instance linked as `role`, in the same commit as the move."""

    role: str
    trigger: str


@dataclass(frozen=True, slots=True)
class Effect:
    """An action outside the database, run after the commit by a worker under a lease (docs/spec/effects.md).

    Attributes:
        name: Interlock's own, or one that is declared with `@effect`.
        done: the trigger that tells the instance that it succeeded, with what it returned as data; None: none does.
        failed: the trigger that tells the instance that its attempts are used up; None: none does.
        exclusive: a field of the instance's context (`id`: the instance itself): effects with the same value in that
            field never run at the same time.
        place: `FILE:LINE` where it was made, for messages; it sets this itself.
    """

    name: str
    done: str | None = None
    failed: str | None = None
    exclusive: str | None = None
    place: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", made_at())


@dataclass(frozen=True, slots=True)
class ApprovalPoint:
    """Holds the trigger until `quorum` people, none of them the author, approve (MACHINE-6).

    Attributes:
        quorum: how many must approve. The author is the context's `author`, or else who fired the trigger.
        deciders: who may decide; empty: anyone but the author.
    """

    quorum: int = 1
    deciders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deadline:
    """Fires a trigger on an instance that stays in a state for too long, whatever moves it makes within that state.

    Attributes:
        seconds: how long it may stay; the default, if a context field may say otherwise.
        trigger: what is then fired, by `machinery`.
        context_key: the context field with which an instance can set its own seconds; None: there is none.
        growth: how the seconds grow with each stay; None: they do not.
        grace_seconds: added to either: whoever works under the same limit reports first.
        place: `FILE:LINE` where it was made, for messages; it sets this itself.
    """

    seconds: float
    trigger: str
    context_key: str | None = None
    growth: Growth | None = None
    grace_seconds: float = 0.0
    place: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.place:
            object.__setattr__(self, "place", made_at())

    def resolved(self, context: Mapping[str, Any], row: Mapping[str, Any] | None = None) -> "Deadline":
        """This deadline with the seconds for one instance, its grace included.

        Args:
            context: the instance's own data.
            row: its typed row before the move that enters the state; read only if the deadline grows.
        """
        configured = context.get(self.context_key) if self.context_key else None
        if self.growth:
            seconds = self.growth.seconds(self.seconds, configured or {}, row or {})
        else:
            seconds = self.seconds if configured is None else float(configured)
        seconds += self.grace_seconds
        return self if seconds == self.seconds else replace(self, seconds=seconds, grace_seconds=0.0)


@dataclass(frozen=True, slots=True)
class Link:
    """A reference to another instance: `context[context_key]` holds its entity id (or UUID).

    The other instance has this one as a link with the role `inverse`. If the link is `open`, an instance that has ended
    cannot be named.
    """

    role: str
    type: str
    context_key: str
    inverse: str
    open: bool = False


@dataclass(frozen=True, slots=True)
class Relink:
    """The move links its instance, in the role of one of its links, to another instead, or to none (MACHINE-11).

    `data_key` names the field of the trigger's data that has the other instance's entity id (or UUID); None: to none.
    """

    role: str
    data_key: str | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A context field that guards rely on; it is checked when an instance is created.

    `holds` is pure; `description` completes the message "must be …". A field that is not `required` may be missing.
    """

    name: str
    holds: Callable[[object], bool]
    description: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of a machine's table; it has several sources if the same rule applies to each.

    An `exceptional` transition may leave a terminal state (POLICY-6); its guards require an authority. `back` gives the
    reason why a transition may lead to an earlier level of the definition's order (POLICY-2). `deprecated` says why the
    trigger is deprecated and what to fire instead; it only causes a warning. `by` names who may fire it; empty: nobody
    said, so anyone. `event` is the name that its events have beside their type (EVENT-17); empty: none.
    `relink` is the link that it changes. `place` is `FILE:LINE` where it was made, for messages.
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
    by: tuple[Authority, ...] = ()
    event: str = ""
    relink: Relink | None = None
    place: str = field(default="", compare=False, repr=False)

    @property
    def authorities(self) -> tuple[Authority, ...]:
        """Who may fire it (AUTHORITY-1)."""
        return self.by or ("anyone",)

    def open_to(self, authority: Authority) -> bool:
        """Whether this authority may fire it: what anyone may, everyone may."""
        return authority in self.authorities or "anyone" in self.authorities


def T(
    trigger: str,
    sources: str | tuple[str, ...],
    dest: str,
    *,
    by: Authority | tuple[Authority, ...] = (),
    when: tuple[Guard, ...] = (),
    then: tuple[FollowUp, ...] = (),
    effects: tuple[Effect, ...] = (),
    approval: ApprovalPoint | None = None,
    settles: Literal["granted", "refused"] | None = None,
    severity: Severity = "info",
    exceptional: bool = False,
    back: Back | None = None,
    deprecated: str = "",
    event: str = "",
    relink: Relink | None = None,
) -> Transition:
    """Declare a transition. Sources are listed, never `*`, which would include the destination and terminal states.

    Args:
        trigger: an imperative or a fact (`submit_pr`, `tests_pass`).
        sources: the state or states it leaves.
        dest: the state it enters.
        by: who may fire it (AUTHORITY-1); default: whom its definition says, or anyone.
        when: guards, all of which must hold.
        then: triggers fired on linked instances in the same commit.
        effects: actions outside the database, after the commit.
        approval: hold the trigger until this approval is granted.
        settles: this move grants or refuses the approval that the instance represents.
        severity: of the event (EVENT-3).
        exceptional: it may leave a terminal state, and must be guarded (POLICY-6).
        back: why it may lead to an earlier level (POLICY-2); a `retry` must be bounded by a guard.
        deprecated: why it should not be fired any more, and what to fire instead (VERSION-3).
        event: a name for its events, such as `patch_rolled_back` (EVENT-17); default: that of the state it enters, if
            its definition names one.
        relink: a link of the instance that it changes (MACHINE-11).
    """
    listed = (sources,) if isinstance(sources, str) else tuple(sources)
    who = (by,) if isinstance(by, str) else tuple(by)
    return Transition(
        trigger,
        listed,
        dest,
        when=when,
        then=then,
        effects=effects,
        approval=approval,
        settles=settles,
        severity=severity,
        exceptional=exceptional,
        back=back,
        deprecated=deprecated,
        by=who,
        event=event,
        relink=relink,
        place=made_at(),
    )


@dataclass(frozen=True, eq=False, kw_only=True)  # one object per version: identity is equality, and hashing is free
class Definition:
    """A machine: its states, where it begins and ends, and every legal move.

    Attributes:
        type: what its instances are called (`story`).
        version: its semantic version; each instance keeps the one it was created under.
        summary: one sentence.
        states: in reading order; default: those of `order`, in its order.
        initial: the state in which instances are created.
        terminal: the states in which they end.
        transitions: made by `T`.
        deadlines: state -> the trigger fired on an instance that stays in it for too long.
        links: how its instances name others in their context.
        context: a pydantic model of the context: what does not fit it is refused, and guards and effects get it
            (TYPED-1). Instead of `fields`.
        data: trigger -> a pydantic model of its data; the same holds of it (TYPED-2).
        fields: of the context, checked when an instance is created.
        birth_effects: the effects that are run once an instance is created.
        required_metadata: the metadata that each of its events must have (EVENT-4); the writer of the event adds it.
        order: the states in levels, from first to last: a move to an earlier one must say why it goes back (POLICY-2).
        deprecated: states that are not to be entered any more, each with why and what instead.
        resting: the states in which an instance may stay for ever without counting as stuck (RECOVER-3). This, `order`
            and `deprecated` are no behaviour: they are left out of the checksum.
        by: who may fire those that do not say it themselves (AUTHORITY-1).
        events: state -> the name of the events that enter it from another one, unless the transition has a name of its
            own (EVENT-17).
        place: `FILE:LINE` where it was made, for messages; it sets this itself.
    """

    type: str
    version: str
    summary: str
    states: tuple[str, ...] = ()
    initial: str
    terminal: frozenset[str]
    transitions: tuple[Transition, ...]
    deadlines: Mapping[str, Deadline] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    context: typed.Model | None = None
    data: Mapping[str, typed.Model] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    birth_effects: tuple[Effect, ...] = ()
    required_metadata: tuple[str, ...] = ()
    order: tuple[tuple[str, ...], ...] = ()
    deprecated: Mapping[str, str] = field(default_factory=dict)
    resting: frozenset[str] = frozenset()
    by: Authority | None = None
    events: Mapping[str, str] = field(default_factory=dict)
    place: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", made_at())
        if not isinstance(self.transitions, tuple | list) or not all(
            isinstance(e, Transition) for e in self.transitions
        ):
            fault = Fault("transitions must be a tuple of T(…); if there is one: (T(…),)", self.place)
            raise InvalidDefinition(str(fault), [fault])
        if not self.states:
            object.__setattr__(self, "states", tuple(state for level in self.order for state in level))
        object.__setattr__(self, "transitions", tuple(self._completed(move) for move in self.transitions))
        for name in ("data", "deadlines", "deprecated", "events"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def _completed(self, move: Transition) -> Transition:
        """A transition with what the definition says for all that do not say it themselves."""
        by = move.by or (() if self.by is None else (self.by,))
        event = move.event or ("" if move.dest in move.sources else self.events.get(move.dest, ""))
        return move if (by, event) == (move.by, move.event) else replace(move, by=by, event=event)

    @cached_property
    def triggers(self) -> tuple[str, ...]:
        """Every trigger's name, in the order declared."""
        return tuple(dict.fromkeys(move.trigger for move in self.transitions))

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """Every effect that its births and moves ask for."""
        return (*self.birth_effects, *(effect for move in self.transitions for effect in move.effects))

    @cached_property
    def authorities(self) -> Mapping[str, tuple[Authority, ...]]:
        """Trigger -> who may fire it: all its transitions say the same (AUTHORITY-7)."""
        return {move.trigger: move.authorities for move in self.transitions}

    @cached_property
    def moves(self) -> Mapping[tuple[str, str], tuple[Transition, ...]]:
        """(trigger, source) -> the candidate transitions, in the order declared."""
        table: dict[tuple[str, str], tuple[Transition, ...]] = {}
        for move in self.transitions:
            for source in move.sources:
                table[move.trigger, source] = (*table.get((move.trigger, source), ()), move)
        return table

    @cached_property
    def needs(self) -> Mapping[str, frozenset[Fact]]:
        """Trigger -> the facts needed to decide it."""
        wanted: dict[str, frozenset[Fact]] = {trigger: frozenset() for trigger in self.triggers}
        for move in self.transitions:
            own: dict[Fact, bool] = {
                "held": move.approval is not None,
                "linked": move.relink is not None,
                "named": move.relink is not None and move.relink.data_key is not None,
                "row": self._grows(move.dest),
                "timer": move.dest in move.sources and move.dest in self.deadlines,
            }
            needed: set[Fact] = {fact for fact, needs in own.items() if needs}
            wanted[move.trigger] = wanted[move.trigger].union(needed, *(guard.needs for guard in move.when))
        return wanted

    @cached_property
    def roles(self) -> Mapping[str, frozenset[str] | None]:
        """Trigger -> the roles in which the instances are linked that its guards read; None: in all."""
        read: dict[str, frozenset[str] | None] = {trigger: frozenset() for trigger in self.triggers}
        for move in self.transitions:
            guards = [guard for guard in move.when if "linked" in guard.needs]
            before = read[move.trigger]
            if before is None or move.relink is not None or not all(guard.roles for guard in guards):
                read[move.trigger] = None
            else:
                read[move.trigger] = before.union(*(guard.roles for guard in guards))
        return read

    def _grows(self, state: str) -> bool:
        return state in self.deadlines and self.deadlines[state].growth is not None

    def relinked(self, trigger: str) -> tuple[Link, str] | None:
        """The link that a trigger changes, and the field of its data that names the other instance; None: neither."""
        for move in self.transitions:
            if move.trigger == trigger and move.relink and move.relink.data_key:
                return self.link(move.relink.role), move.relink.data_key
        return None

    def link(self, role: str) -> Link:
        """Its link of this role."""
        return next(link for link in self.links if link.role == role)

    def legal(self, state: str) -> tuple[str, ...]:
        """The triggers that have a transition out of `state`, regardless of guards."""
        return tuple(trigger for trigger in self.triggers if (trigger, state) in self.moves)

    @cached_property
    def has_models(self) -> bool:
        """Whether it names a model, so that contexts and data have to be read as such."""
        return self.context is not None or bool(self.data)

    @cached_property
    def context_keys(self) -> frozenset[str]:
        """The keys of the context that it declares as fields, or its model has."""
        return frozenset(
            {each.name for each in self.fields} | set(typed.properties(self.context) if self.context else ())
        )

    @cached_property
    def declared_keys(self) -> frozenset[str]:
        """The same, and those by which its links are named."""
        return self.context_keys | {link.context_key for link in self.links}

    def given_context(self, context: Mapping[str, Any] | BaseModel) -> Mapping[str, Any]:
        """A context that a caller gives, as the JSON that is stored; raises `BadInput` as `typed.as_json`."""
        try:
            return typed.as_json(self.context, context)
        except typed.Misfit as misfit:
            raise BadInput(f"context of a {self.type}: {misfit}") from misfit

    def given_data(self, trigger: str, data: BaseModel) -> Mapping[str, Any]:
        """The model that a caller gives a trigger, as JSON; raises `WrongData` as `typed.as_json`."""
        try:
            return typed.as_json(self.data.get(trigger), data)
        except typed.Misfit as misfit:
            raise WrongData(f"data of {trigger!r}: {misfit}") from misfit

    def wrong_fields(self, context: Mapping[str, object]) -> tuple[str, ...]:
        """The errors in the context of a new instance, one phrase per field."""
        if self.context is not None:
            try:
                typed.read(self.context, context)
            except typed.Misfit as misfit:
                return misfit.faults
        wrong = tuple(
            f"{each.name} must be {each.description}"
            for each in self.fields
            if (not each.holds(context[each.name]) if each.name in context else each.required)
        )
        return wrong + self._misspelt(frozenset(context))

    @lru_cache(maxsize=16)  # noqa: B019 - a definition lives as long as its process; keys of callers may be long
    def _misspelt(self, keys: frozenset[str]) -> tuple[str, ...]:
        """The keys of a context that are most likely misspelt ones that it declares (MACHINE-12)."""
        absent = self.declared_keys - keys
        own = sorted(filter(lambda key: isinstance(key, str), self.undeclared(keys)))[:MOST_COMPARED] if absent else []
        found = {each: meant(each[:MOST_COMPARED], absent, ALIKE) for each in own}
        wrong = [f"{key} is no field (did you mean {near}?)" for key, near in found.items() if near]
        return (*wrong[:MOST_NAMED], "a key of your own needs another name") if wrong else ()

    def undeclared(self, keys: Collection[str]) -> set[str]:
        """The keys of a context that it does not declare; none if it has a model of it, which decides."""
        return set() if self.context is not None else set(keys) - self.declared_keys

    def require_open(self, trigger: str, entity_id: str, by: str) -> None:
        """Refuse a trigger that no caller can fire without a token or a worker's secret, before PostgreSQL does.

        A statement that PostgreSQL refuses would abort the caller's own transaction.

        Args:
            trigger: one of its triggers.
            entity_id: the name of the instance.
            by: who fires it.

        Raises:
            NotYours: none of the trigger's authorities can be the caller's (AUTHORITY-8).
        """
        allowed = self.authorities[trigger]
        if not BY_NAME.isdisjoint(allowed):
            return
        raise NotYours(refusal(f"{trigger} of {self.type} {entity_id} is not {by}'s to fire", allowed))

    def require_data(self, trigger: str, data: Mapping[str, Any]) -> None:
        """Raise `WrongData`, with the field, if the data that a caller gives does not fit the trigger's model."""
        if (model := self.data.get(trigger)) is None:
            return
        try:
            typed.read(model, data)
        except typed.Misfit as misfit:
            raise WrongData(f"data of {trigger!r}: {misfit}") from misfit

    def require_trigger(self, trigger: str) -> None:
        """Raise `UnknownTrigger`, with the list of triggers, if no transition has `trigger`."""
        if trigger not in self.triggers:
            raise UnknownTrigger(
                f"{self.type} {self.version} has no trigger {trigger!r}. It has: {', '.join(self.triggers)}."
            )
