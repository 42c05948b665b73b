"""Checks of what a definition's transitions name: links, approvals, effects, deadlines; and of who may fire them."""

from collections.abc import Iterator

from interlock.workflows.approvals import can_be_given
from interlock.workflows.definition import AUTHORITIES, ApprovalPoint, Authority, Definition, Effect, Transition
from interlock.workflows.faults import Fault
from interlock.workflows.input.names import is_name
from interlock.workflows.spelling import meant


def faults(definition: Definition) -> Iterator[str | Fault]:
    """What is wrong with them, one phrase each."""
    for move in definition.transitions:
        for message in (*_names_links(definition, move), *_approval(move)):
            yield Fault(message, move.place)
        for effect in move.effects:
            yield from _effect(definition, effect, f"{move.trigger!r}", move.dest)
    for effect in definition.birth_effects:
        yield from _effect(definition, effect, "its birth", definition.initial)
    yield from _deadlines(definition)
    yield from _authorities(definition)


def _names_links(definition: Definition, move: Transition) -> Iterator[str]:
    own = {link.role for link in definition.links}
    # The other side of a link to the same type has this type, too.
    roles = own | {link.inverse for link in definition.links if link.type == definition.type}
    known = f"it has {', '.join(sorted(roles)) or 'none'}"
    for follow_up in move.then:
        if follow_up.role not in roles:
            yield f"{move.trigger!r} follows up on {follow_up.role!r}, which is not a link of this type; {known}"
    if move.relink and move.relink.role not in own:
        yield f"{move.trigger!r} changes {move.relink.role!r}, which is not a link of this type; {known}"


def _approval(move: Transition) -> Iterator[str]:
    trigger, point = move.trigger, move.approval or ApprovalPoint()
    if type(point.quorum) is not int or point.quorum < 1:
        yield f"{trigger!r} asks for a quorum below one"
    elif not isinstance(point.deciders, tuple) or not all(is_name(each) for each in point.deciders):
        yield f"{trigger!r} names deciders that are no tuple of names"
    elif len(set(point.deciders)) < len(point.deciders):
        yield f"{trigger!r} names a decider twice"
    elif not can_be_given(point.deciders, point.quorum):
        yield f"{trigger!r} asks for a quorum of {point.quorum}, but names {len(point.deciders)} deciders"


def _effect(definition: Definition, effect: Effect, owner: str, state: str) -> Iterator[Fault]:
    for trigger in (effect.done, effect.failed):
        if trigger is not None and (trigger, state) not in definition.moves:
            cure = f'add T({trigger!r}, {state!r}, …, by="effect")'
            message = f"effect {effect.name!r} of {owner} reports {trigger!r}, illegal in {state!r}: {cure}"
            yield Fault(message, effect.place)
    if effect.exclusive not in (None, "id", *definition.context_keys):
        message = f"effect {effect.name!r} of {owner} is exclusive by {effect.exclusive!r}, no field of this type"
        yield Fault(message, effect.place)


def _deadlines(definition: Definition) -> Iterator[Fault]:
    for state, deadline in definition.deadlines.items():
        for message in _deadline(definition, state):
            yield Fault(message, deadline.place)


def _deadline(definition: Definition, state: str) -> Iterator[str]:
    deadline = definition.deadlines[state]
    if (deadline.trigger, state) not in definition.moves:
        cure = f'add T({deadline.trigger!r}, {state!r}, …, by="machinery")'
        yield f"the deadline of {state!r} fires {deadline.trigger!r}, which is illegal there: {cure}"
    if deadline.seconds <= 0:
        yield f"the deadline of {state!r} is not in the future: give more than 0 seconds"
    if deadline.growth and deadline.growth.cap_seconds < deadline.seconds:
        yield f"the deadline of {state!r} is capped below where it begins"
    if deadline.context_key is not None and deadline.context_key not in definition.context_keys:
        yield f"the deadline of {state!r} comes from {deadline.context_key!r}, which is not a field of this type"


def _authorities(definition: Definition) -> Iterator[Fault]:
    """Each transition is open to those who fire it by themselves, and the outcome of an effect to nobody unnoticed."""
    for move in definition.transitions:
        for message in _by(definition, move):
            yield Fault(message, move.place)
    for state, deadline in definition.deadlines.items():
        for move in definition.moves.get((deadline.trigger, state), ()):
            yield from _closed(move, "machinery", f"the deadline of {state!r} fires")
    owners = [(effect, move.trigger, move.dest) for move in definition.transitions for effect in move.effects]
    for effect, owner, state in [*owners, *((each, "birth", definition.initial) for each in definition.birth_effects)]:
        for trigger in filter(None, (effect.done, effect.failed)):
            for move in definition.moves.get((trigger, state), ()):
                yield from _closed(move, "effect", f"effect {effect.name!r} of {owner!r} reports")
                if not move.by:
                    message = (
                        f"effect {effect.name!r} of {owner!r} reports {trigger!r}, which anyone may fire: "
                        'close it with by="effect", or say by="anyone" if that is meant'
                    )
                    yield Fault(message, move.place)


def _by(definition: Definition, move: Transition) -> Iterator[str]:
    for each in dict.fromkeys(move.by):
        if each not in AUTHORITIES:
            near = meant(each, AUTHORITIES)
            hint = f"; did you mean {near!r}?" if near else ""
            yield f"{move.trigger!r} may be fired by {each!r}, which is none of {', '.join(AUTHORITIES)}{hint}"
        elif move.by.count(each) > 1:
            yield f"{move.trigger!r} lists {each!r} twice"
    if set(move.authorities) != set(definition.authorities[move.trigger]):
        here, elsewhere = " or ".join(move.authorities), " or ".join(definition.authorities[move.trigger])
        yield f"{move.trigger!r} is open to {here} in {move.sources[0]!r}, elsewhere to {elsewhere}: let it be one"


def _closed(move: Transition, authority: Authority, doing: str) -> Iterator[Fault]:
    if not move.open_to(authority) and set(move.by) <= set(AUTHORITIES):  # a misspelt one is a fault of its own
        message = f"{doing} {move.trigger!r}, which is open to {' or '.join(move.by)} only: add {authority!r}"
        yield Fault(message, move.place)
