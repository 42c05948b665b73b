"""Check a definition for errors and warnings before it is used. Each error says what to do, in which file and line."""

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

from interlock.workflows import effects
from interlock.workflows.definition import (
    SEVERITIES,
    ApprovalPoint,
    Deadline,
    Definition,
    Effect,
    Field,
    FollowUp,
    Guard,
    Link,
    Transition,
)
from interlock.workflows.errors import InvalidDefinition
from interlock.workflows.faults import Fault
from interlock.workflows.spelling import meant
from interlock.workflows.versioning import bindings, levels, models, undeclared

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
LETTERS = "letters, digits and _, at most 100, the first a letter"
EVENT = re.compile(r"[a-z][a-z0-9_]{0,99}")
TYPES_OF_LINES = ("manual_override", "error", "warning")  # an `event_type` means something else by these (EVENT-2)
TRANSITION = "_state_transition"
VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}")  # SemVer 2.0.0, 2: no leading zeros

OF_MOVES: tuple[tuple[str, type], ...] = (("when", Guard), ("then", FollowUp), ("effects", Effect))

Found = Iterator[str | Fault]


def check(definition: Definition) -> list[str]:
    """Check a definition, as it is checked when Interlock loads it.

    Args:
        definition: of yours.

    Returns:
        Warnings, one line each.

    Raises:
        InvalidDefinition: it has errors; the message lists all, with file and line.
    """
    if wrong := faults(definition):
        message = f"the definition {definition.type} {definition.version} is invalid: {'; '.join(map(str, wrong))}"
        raise InvalidDefinition(message, wrong)
    return list(doubts(definition))


def doubts(definition: Definition) -> Iterator[str]:
    """What is doubtful in a definition that is right, a line each."""
    yield from levels.doubts(definition)
    yield from undeclared.doubts(definition)


def faults(definition: Definition) -> list[Fault]:
    """All that is wrong with a definition; where parts are not of the kind that they should be, only these."""
    parts = (_names, _shape, _reach, bindings.faults, effects.problems, levels.faults, models.faults)
    found = [*misshapen(definition), *_guards(definition), *models.unusable(definition)]
    found = found or [each for part in parts for each in part(definition)]
    return [each if isinstance(each, Fault) else Fault(each, definition.place) for each in found]


def misshapen(definition: Definition) -> Found:
    """Parts that are of the wrong kind, as a mistyped comma or a missing one leaves them."""
    for name in ("type", "version", "initial"):
        if not isinstance(value := getattr(definition, name), str):
            yield f"{name} must be text, not {type(value).__name__}"
    names = {"states": definition.states, "terminal": definition.terminal}
    for name, value in names.items():
        yield from _several(name, value, str, '("one", "two")', definition.place)
    parts: tuple[tuple[str, Any, type], ...] = (
        ("links", definition.links, Link),
        ("fields", definition.fields, Field),
        ("birth_effects", definition.birth_effects, Effect),
        ("the values of deadlines", tuple(definition.deadlines.values()), Deadline),
    )
    for name, value, kind in parts:
        yield from _several(name, value, kind, f"({kind.__name__}(…),)", definition.place)
    for move in definition.transitions:
        for name, kind in OF_MOVES:
            example = f"{name}=(…,)"
            yield from _several(f"{name} of {move.trigger!r}", getattr(move, name), kind, example, move.place)
        yield from _several(f"the sources of {move.trigger!r}", move.sources, str, '("one", "two")', move.place)
        if not isinstance(move.trigger, str) or not isinstance(move.dest, str):
            yield Fault(f"T({move.trigger!r}, …, {move.dest!r}) needs a trigger and one state as text", move.place)
        if move.approval is not None and not isinstance(move.approval, ApprovalPoint):
            yield Fault(f"the approval of {move.trigger!r} must be an ApprovalPoint", move.place)


def _several(what: str, value: Any, kind: type, example: str, place: str) -> Iterator[Fault]:
    collected = isinstance(value, tuple | list | set | frozenset)
    if not collected or not all(isinstance(each, kind) for each in value):
        named = "text" if kind is str else kind.__name__
        yield Fault(f"{what} must be a tuple of {named}, not {value!r:.100}: write {example}", place)


def _guards(definition: Definition) -> Iterator[Fault]:
    """Guards whose name is none, or that cannot be called with one argument, the case."""
    several = (move.when for move in definition.transitions if isinstance(move.when, tuple | list))
    for guard in dict.fromkeys(one for guards in several for one in guards if isinstance(one, Guard)):
        if not isinstance(guard.name, str) or not NAME.fullmatch(guard.name):
            message = f"the guard {guard.name!r:.120} has no valid name ({LETTERS}): its description can say more"
            yield Fault(message, _place_of(guard.holds) or definition.place)
        for name, function in (("holds", guard.holds), ("missing", guard.missing)):
            if function is not None and (why := _uncallable(function)):
                message = f"{name} of the guard {guard.name!r} is called with one argument, a Case, but {why}"
                yield Fault(message, _place_of(function) or definition.place)


def _place_of(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def _uncallable(function: Any) -> str:
    if not callable(function):
        return f"is no function: {function!r:.100}"
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        return "is async or yields: guards are plain functions, and what takes time is an effect"
    try:
        inspect.signature(function).bind(object())
    except TypeError:
        return f"takes {inspect.signature(function)}"
    except ValueError:  # a built-in that says nothing of its arguments
        return ""
    return ""


def _names(definition: Definition) -> Found:
    for name in (definition.type, *definition.states, *definition.triggers):
        if not NAME.fullmatch(name):
            yield f"{name!r} is not a name ({LETTERS})"
    if not VERSION.fullmatch(definition.version):
        yield f"version {definition.version!r} is not MAJOR.MINOR.PATCH, like 1.0.0"
    for state in sorted(definition.events.keys() - set(definition.states)):
        yield f"the events of {state!r} have a name, but it is not a state{_near(state, definition.states)}"
    for event in sorted({*definition.events.values(), *(move.event for move in definition.transitions if move.event)}):
        if not EVENT.fullmatch(event) or event in TYPES_OF_LINES or event.endswith(TRANSITION):
            yield (
                f"{event!r} is no name of an event: lower-case letters, digits and _, at most 100, the first a letter; "
                f"not {', '.join(TYPES_OF_LINES)}, and not ending in {TRANSITION}"
            )
    if len(set(definition.states)) < len(definition.states):
        yield "a state is listed twice: remove one"


def _near(name: str, known: Iterable[str]) -> str:
    near = meant(name, known)
    return f"; did you mean {near!r}?" if near else ""


def _shape(definition: Definition) -> Found:
    known = set(definition.states)
    if definition.initial not in known:
        yield f"the initial state {definition.initial!r} is not among the states{_near(definition.initial, known)}"
    for state in sorted(definition.terminal - known):
        yield f"the terminal state {state!r} is not among the states{_near(state, known)}"
    for state in sorted(definition.deprecated.keys() - known):
        yield f"{state!r} is deprecated but not a state{_near(state, known)}"
    for state in sorted(definition.resting - (known - definition.terminal)):
        yield f"{state!r} is a resting state, but not among the states that are no end"
    for state in sorted(definition.deadlines.keys() - known):
        yield f"{state!r} has a deadline, but is not among the states{_near(state, known)}"
    for move in definition.transitions:
        for message in _ends(definition, move):
            yield Fault(message, move.place)
    for (trigger, source), moves in definition.moves.items():
        if hiding := [move for move in moves[:-1] if not move.when]:
            message = f"{trigger!r} from {source!r} has several destinations, and an unguarded one hides those after it"
            yield Fault(f"{message}: guard it (when=…), or put it last", hiding[0].place)


def _ends(definition: Definition, move: Transition) -> Iterator[str]:
    """What is wrong with the states between which a transition leads, and with the severity of its events."""
    known = set(definition.states)
    for state in sorted({*move.sources, move.dest} - known):
        cure = _near(state, known) or ": add it to the states, or correct the name"
        yield f"{move.trigger!r} names the unknown state {state!r}{cure}"
    for state in sorted(set(move.sources) & definition.terminal):
        if not move.exceptional:
            yield f"{move.trigger!r} leaves the terminal state {state!r}: take it out of the sources, or of terminal"
        elif not move.when:
            yield f"{move.trigger!r} leaves the terminal state {state!r} under nobody's authority: guard it"
    if move.severity not in SEVERITIES:
        yield f"the severity of {move.trigger!r} is {move.severity!r:.100}, which is none of {', '.join(SEVERITIES)}"
    if not move.sources or len(set(move.sources)) < len(move.sources):
        yield f"{move.trigger!r} lists no source, or one twice: list each state that it leaves once"


def _reach(definition: Definition) -> Found:
    reached = levels.reached(definition.transitions, [definition.initial])
    for state in definition.states:
        if state not in reached:
            yield f"state {state!r} cannot be reached: add a transition that leads to it, or remove it"
        if state not in definition.terminal and not definition.legal(state):
            yield f"state {state!r} is a dead end but not terminal: add a transition out of it, or list it in terminal"
