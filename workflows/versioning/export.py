"""Export a definition as JSON, as a checksum, and as a Mermaid state diagram."""

import json
from hashlib import sha256
from typing import Any

from interlock.workflows.definition import HOUR_SECONDS, Deadline, Definition, Effect, Transition
from interlock.workflows.typed import recorded_schema

LIT = "fill:#ffd54f,stroke:#333,color:#000"  # the current state of a diagram


def public(definition: Definition) -> dict[str, Any]:
    """The published form: `{type, version, initial, states, transitions}`, with one transition per source.

    `by` of a transition lists who may fire it (AUTHORITY-1); `event`, if it is there, names its events (EVENT-17).
    """
    return {
        "type": definition.type,
        "version": definition.version,
        "initial": definition.initial,
        "states": {state: {"terminal": state in definition.terminal} for state in definition.states},
        "transitions": [
            {"trigger": move.trigger, "source": source, "dest": move.dest, "by": list(move.authorities)}
            | ({"event": move.event} if move.event else {})
            for move in definition.transitions
            for source in move.sources
        ],
    }


def recorded(definition: Definition) -> dict[str, Any]:
    """The recorded form: everything that determines behaviour, as PostgreSQL stores it; without the summary."""
    body = public(definition) | {
        "rules": [_rule(move) | _sources(definition, move) for move in definition.transitions],
        "deadlines": {state: _deadline(deadline) for state, deadline in sorted(definition.deadlines.items())},
        "links": [
            {"role": link.role, "type": link.type, "context_key": link.context_key, "inverse": link.inverse}
            | ({"open": True} if link.open else {})
            for link in definition.links
        ],
        "fields": [[each.name, each.description, each.required] for each in definition.fields],
        "birth_effects": [
            effect.name if effect == Effect(effect.name) else _effect(effect) for effect in definition.birth_effects
        ],
    }
    if definition.context is not None:
        body["context"] = recorded_schema(definition.context)
    if definition.data:
        body["data"] = {trigger: recorded_schema(model) for trigger, model in sorted(definition.data.items())}
    # Unused features are left out, so that definitions recorded before a feature existed keep their checksum.
    return body | ({"required_metadata": list(definition.required_metadata)} if definition.required_metadata else {})


def _deadline(deadline: Deadline) -> dict[str, Any]:
    body: dict[str, Any] = {"seconds": deadline.seconds, "trigger": deadline.trigger}
    if deadline.context_key is not None:
        body["context_key"] = deadline.context_key
    if deadline.growth:
        body["growth"] = {
            "column": deadline.growth.column,
            "factor": deadline.growth.factor,
            "cap_seconds": deadline.growth.cap_seconds,
        }
    if deadline.grace_seconds:
        body["grace_seconds"] = deadline.grace_seconds
    return body


def _rule(move: Transition) -> dict[str, Any]:
    body: dict[str, Any] = {
        "trigger": move.trigger,
        "when": [guard.name for guard in move.when],
        "then": [[follow_up.role, follow_up.trigger] for follow_up in move.then],
        "effects": [_effect(effect) for effect in move.effects],
        "approval": {"quorum": move.approval.quorum, "deciders": list(move.approval.deciders)}
        if move.approval
        else None,
        "settles": move.settles,
        "severity": move.severity,
    }
    if move.relink:
        body["relink"] = {"role": move.relink.role, "data_key": move.relink.data_key}
    return body | ({"exceptional": True} if move.exceptional else {})


def _sources(definition: Definition, move: Transition) -> dict[str, Any]:
    """A rule's sources, if the order of the arrows does not determine them (`workflows.versioning.rules`)."""
    alike = [each for each in definition.transitions if each.trigger == move.trigger]
    determined = len({each.dest for each in alike}) == len(alike) or all(len(each.sources) == 1 for each in alike)
    return {} if determined else {"sources": list(move.sources)}


def _effect(effect: Effect) -> list[str | None]:
    return [effect.name, effect.done, effect.failed, *([effect.exclusive] if effect.exclusive else [])]


def checksum(definition: Definition) -> str:
    """SHA-256 (hex) of the recorded form, with sorted keys and no white space: equal if and only if behaviour is."""
    return canonical_checksum(recorded(definition))


def canonical_checksum(body: dict[str, Any]) -> str:
    """SHA-256 (hex) of a recorded form, independent of the order of its keys."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(canonical.encode()).hexdigest()


def mermaid(definition: Definition, current: str | None = None) -> str:
    """A `stateDiagram-v2`; `‖` marks an approval point, `?` a guard, `by` who may fire it, unless anyone may.

    Moves that change a link and no state are notes, one for each trigger. The state `current`, if given, is lit.
    """
    lines = ["stateDiagram-v2", f"    [*] --> {definition.initial}"]
    staying: dict[str, list[str]] = {}
    for move in definition.transitions:
        marks = (" ‖ approval" if move.approval else "") + "".join(f" ? {guard.name}" for guard in move.when)
        marks += "" if move.open_to("anyone") else f" by {' or '.join(move.authorities)}"
        if move.relink and move.sources == (move.dest,):
            staying.setdefault(f"{move.trigger}{marks}", []).append(move.dest)
        else:
            lines += [f"    {source} --> {move.dest}: {move.trigger}{marks}" for source in move.sources]
    lines += [f"    note left of {states[0]}: {move} stays in {', '.join(states)}" for move, states in staying.items()]
    for state, deadline in definition.deadlines.items():
        lines.append(f"    note right of {state}: {deadline.trigger} after {duration_text(deadline)}")
    lines += [f"    {state} --> [*]" for state in definition.states if state in definition.terminal]
    if current is not None:
        lines += [f"    classDef current {LIT}", f"    class {current} current"]
    return "\n".join(lines)


def duration_text(deadline: Deadline) -> str:
    """A deadline's duration for people: `72 h`, `30 min + 1 min`, `2 s, growing`."""
    grace = f" + {_span(deadline.grace_seconds)}" if deadline.grace_seconds else ""
    return _span(deadline.seconds) + grace + (", growing" if deadline.growth else "")


def _span(seconds: float) -> str:
    hours, minutes = seconds / HOUR_SECONDS, seconds / 60
    return f"{hours:g} h" if hours >= 1 else f"{minutes:g} min" if minutes >= 1 else f"{seconds:g} s"
