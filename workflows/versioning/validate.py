"""Check a definition for errors and warnings before it is used."""

import re
from collections.abc import Iterator

from interlock.workflows.approvals import can_be_given
from interlock.workflows.definition import AUTHORITIES, ApprovalPoint, Authority, Definition, Effect, Transition
from interlock.workflows.errors import InvalidDefinition
from interlock.workflows.input.names import is_name
from interlock.workflows.versioning import levels

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")  # SemVer 2.0.0, 2: no leading zeros


def check(definition: Definition) -> list[str]:
    """Check a definition; returns warnings, one line each.

    Raises:
        InvalidDefinition: it has errors; the message lists all.
    """
    parts = (_names, _shape, _reach, _bindings, _authorities, levels.faults)
    if wrong := [message for part in parts for message in part(definition)]:
        raise InvalidDefinition(
            f"the definition {definition.type} {definition.version} is invalid: " + "; ".join(wrong)
        )
    return list(levels.doubts(definition))


def _names(definition: Definition) -> Iterator[str]:
    for name in (definition.type, *definition.states, *definition.triggers):
        if not NAME.fullmatch(name):
            yield f"{name!r} is not a name (letters, digits and _, at most 100, the first a letter)"
    if not VERSION.fullmatch(definition.version):
        yield f"version {definition.version!r} is not MAJOR.MINOR.PATCH"
    if len(set(definition.states)) < len(definition.states):
        yield "a state is listed twice"


def _shape(definition: Definition) -> Iterator[str]:
    known = set(definition.states)
    if definition.initial not in known:
        yield f"the initial state {definition.initial!r} is not among the states"
    for state in sorted(definition.terminal - known):
        yield f"the terminal state {state!r} is not among the states"
    for state in sorted(definition.deprecated.keys() - known):
        yield f"{state!r} is deprecated but not a state"
    for state in sorted(definition.resting - (known - definition.terminal)):
        yield f"{state!r} is a resting state, but not among the states that are no end"
    for move in definition.transitions:
        for state in sorted({*move.sources, move.dest} - known):
            yield f"{move.trigger!r} names the unknown state {state!r}"
        for state in sorted(set(move.sources) & definition.terminal):
            if not move.exceptional:
                yield f"{move.trigger!r} leaves the terminal state {state!r}"
            elif not move.when:
                yield f"{move.trigger!r} leaves the terminal state {state!r} under nobody's authority: guard it"
        if not move.sources or len(set(move.sources)) < len(move.sources):
            yield f"{move.trigger!r} lists no source, or one twice"
    for (trigger, source), moves in definition.moves.items():
        if len(moves) > 1 and any(not _decidable(move) for move in moves[:-1]):
            yield f"{trigger!r} from {source!r} has several destinations, and an unguarded one hides those after it"


def _decidable(move: Transition) -> bool:
    return bool(move.when)


def _reach(definition: Definition) -> Iterator[str]:
    reached = levels.reached(definition.transitions, [definition.initial])
    for state in definition.states:
        if state not in reached:
            yield f"state {state!r} cannot be reached"
        if state not in definition.terminal and not definition.legal(state):
            yield f"state {state!r} is a dead end but not terminal"


def _bindings(definition: Definition) -> Iterator[str]:
    roles = {link.role for link in definition.links}
    # The other side of a link to the same type has this type, too.
    roles |= {link.inverse for link in definition.links if link.type == definition.type}
    fields = {field.name for field in definition.fields}
    for move in definition.transitions:
        for follow_up in move.then:
            if follow_up.role not in roles:
                yield f"{move.trigger!r} follows up on {follow_up.role!r}, which is not a link of this type"
        if move.approval:
            yield from _approval(move.trigger, move.approval)
        for effect in move.effects:
            yield from _effect(definition, effect, f"{move.trigger!r}", move.dest)
    for effect in definition.birth_effects:
        yield from _effect(definition, effect, "its birth", definition.initial)
    for state, deadline in definition.deadlines.items():
        if (deadline.trigger, state) not in definition.moves:
            yield f"the deadline of {state!r} fires {deadline.trigger!r}, which is illegal there"
        if deadline.seconds <= 0:
            yield f"the deadline of {state!r} is not in the future"
        if deadline.growth and deadline.growth.cap_seconds < deadline.seconds:
            yield f"the deadline of {state!r} is capped below where it begins"
        if deadline.context_key is not None and deadline.context_key not in fields:
            yield f"the deadline of {state!r} comes from {deadline.context_key!r}, which is not a field of this type"


def _approval(trigger: str, point: ApprovalPoint) -> Iterator[str]:
    if type(point.quorum) is not int or point.quorum < 1:
        yield f"{trigger!r} asks for a quorum below one"
    elif not isinstance(point.deciders, tuple) or not all(is_name(each) for each in point.deciders):
        yield f"{trigger!r} names deciders that are no tuple of names"
    elif len(set(point.deciders)) < len(point.deciders):
        yield f"{trigger!r} names a decider twice"
    elif not can_be_given(point.deciders, point.quorum):
        yield f"{trigger!r} asks for a quorum of {point.quorum}, but names {len(point.deciders)} deciders"


def _effect(definition: Definition, effect: Effect, owner: str, state: str) -> Iterator[str]:
    for trigger in (effect.done, effect.failed):
        if trigger is not None and (trigger, state) not in definition.moves:
            yield f"effect {effect.name!r} of {owner} reports {trigger!r}, illegal in {state!r}"
    if effect.exclusive not in (None, "id", *(field.name for field in definition.fields)):
        yield f"effect {effect.name!r} of {owner} is exclusive by {effect.exclusive!r}, no field of this type"


def _authorities(definition: Definition) -> Iterator[str]:
    """Each transition is open to those who fire it by themselves, and the outcome of an effect to nobody unnoticed."""
    for move in definition.transitions:
        for each in dict.fromkeys(move.by):
            if each not in AUTHORITIES:
                yield f"{move.trigger!r} may be fired by {each!r}, which is none of {', '.join(AUTHORITIES)}"
            elif move.by.count(each) > 1:
                yield f"{move.trigger!r} lists {each!r} twice"
        if set(move.authorities) != set(definition.authorities[move.trigger]):
            here, elsewhere = " or ".join(move.authorities), " or ".join(definition.authorities[move.trigger])
            yield f"{move.trigger!r} is open to {here} in {move.sources[0]!r}, elsewhere to {elsewhere}: let it be one"
    for state, deadline in definition.deadlines.items():
        for move in definition.moves.get((deadline.trigger, state), ()):
            yield from _closed(move, "machinery", f"the deadline of {state!r} fires")
    owners = [(effect, move.trigger, move.dest) for move in definition.transitions for effect in move.effects]
    for effect, owner, state in [*owners, *((each, "birth", definition.initial) for each in definition.birth_effects)]:
        for trigger in filter(None, (effect.done, effect.failed)):
            for move in definition.moves.get((trigger, state), ()):
                yield from _closed(move, "effect", f"effect {effect.name!r} of {owner!r} reports")
                if not move.by:
                    yield (
                        f"effect {effect.name!r} of {owner!r} reports {trigger!r}, which anyone may fire: "
                        'close it with by="effect", or say by="anyone" if that is meant'
                    )


def _closed(move: Transition, authority: Authority, doing: str) -> Iterator[str]:
    if not move.open_to(authority):
        yield f"{doing} {move.trigger!r}, which is open to {' or '.join(move.by)} only: add {authority!r}"
