"""Determine which versions of a definition a log's entity can have had, and judge its moves under them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from interlock.workflows.audit.events import OVERRIDE
from interlock.workflows.audit.log_schema import LogEvent, shown
from interlock.workflows.definition import Definition, Transition
from interlock.workflows.versioning.migration import MIGRATE

Versions = tuple[Definition, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """A judged move: the versions under which it is legal, and the problem found (None: none)."""

    versions: Versions
    message: str | None = None


def versions_of(known: Iterable[Definition]) -> Mapping[str, Versions]:
    """Type -> its versions, newest first, because messages name the first version that fits."""
    found: dict[str, list[Definition]] = {}
    for definition in known:
        found.setdefault(definition.type, []).append(definition)
    return {
        type_: tuple(sorted(each, key=lambda one: tuple(map(int, one.version.split("."))), reverse=True))
        for type_, each in found.items()
    }


def judge(event: LogEvent, versions: Versions) -> Judged:
    """Find the versions under which an event's move is legal.

    Args:
        event: a move.
        versions: the candidates, at least one: those that fit the earlier moves, or the one that the event names.
    """
    source, dest = str(event.from_state), str(event.to_state)
    if event.trigger == MIGRATE:  # the entity has another version from here on; only the destination can be checked
        fitting = tuple(each for each in versions if dest in each.states)
        message = _named(event, {None}) if fitting else f"{_names(versions)} has no state {dest!r}"
        return Judged(fitting or versions, message)
    inside = tuple(each for each in versions if source in each.states and dest in each.states)
    if not inside:
        odd = source if not any(source in each.states for each in versions) else dest
        states = ", ".join(versions[0].states)
        return Judged(versions, f"{_names(versions)} has no state {odd!r}; {versions[0].version} has {states}")
    legal = tuple(each for each in inside if _moves(event, each))
    if legal:
        names = {move.event or None for each in legal for move in _moves(event, each)}
        return Judged(legal, _severity(event, legal) or _named(event, names))
    if all(source in each.terminal for each in inside):
        return Judged(inside, f"illegal: {source!r} is terminal, and what has ended stays so")
    by = f" by {event.trigger}" if event.trigger else ""
    expected = "; ".join(dict.fromkeys(_out_of(source, inside[0])))
    return Judged(inside, f"illegal: {source} → {dest}{by}; {_names(inside)} expects {expected or 'nothing'}")


def _moves(event: LogEvent, definition: Definition) -> list[Transition]:
    named = event.trigger not in (None, OVERRIDE)  # EVENT-2: a trigger may be called manual_override
    return [
        move
        for move in definition.transitions
        if event.from_state in move.sources
        and event.to_state == move.dest
        and (not named or move.trigger == event.trigger)
    ]


def _severity(event: LogEvent, versions: Versions) -> str | None:
    declared = {move.severity for each in versions for move in _moves(event, each)}
    expected = {"warning", *(declared & {"critical"})} if event.event_type == OVERRIDE else declared
    if event.severity in expected:
        return None
    return f"severity is {event.severity}; expected {' or '.join(sorted(expected))} (EVENT-3)"


def _named(event: LogEvent, names: set[str | None]) -> str | None:
    """Why an event's name is not that of its move; None if it is, or if its log is older than names (EVENT-17)."""
    if "named_event" not in event.model_fields_set or event.named_event in names:
        return None
    expected = " or ".join(sorted(each or "null" for each in names))
    return f"changed: named_event is {shown(event.named_event)}; expected {expected} (EVENT-17)"


def _out_of(source: str, definition: Definition) -> Iterable[str]:
    return (f"{move.dest} by {move.trigger}" for move in definition.transitions if source in move.sources)


def _names(versions: Versions) -> str:
    return f"{versions[0].type} {', '.join(each.version for each in reversed(versions))}"
