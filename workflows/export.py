"""A definition as JSON, as its checksum, and as a Mermaid state diagram."""

import json
from hashlib import sha256
from typing import Any

from workflows.definition import HOUR_SECONDS, Deadline, Definition, Effect, Transition


def public(definition: Definition) -> dict[str, Any]:
    """The published shape: `{type, version, initial, states, transitions}`, one transition an entry per source."""
    return {
        "type": definition.type,
        "version": definition.version,
        "initial": definition.initial,
        "states": {state: {"terminal": state in definition.terminal} for state in definition.states},
        "transitions": [
            {"trigger": move.trigger, "source": source, "dest": move.dest}
            for move in definition.transitions
            for source in move.sources
        ],
    }


def recorded(definition: Definition) -> dict[str, Any]:
    """Everything that decides behaviour, as PostgreSQL keeps it. The summary is prose and stays out."""
    body = public(definition) | {
        "rules": [_rule(move) for move in definition.transitions],
        "deadlines": {state: _deadline(deadline) for state, deadline in sorted(definition.deadlines.items())},
        "links": [
            {"role": link.role, "type": link.type, "context_key": link.context_key, "inverse": link.inverse}
            for link in definition.links
        ],
        "fields": [[each.name, each.says, each.required] for each in definition.fields],
        "birth_effects": [
            effect.name if effect == Effect(effect.name) else _effect(effect) for effect in definition.birth_effects
        ],
    }
    # What a definition does not use stays out: one recorded before it could be said must keep its checksum.
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
    return body


def _rule(move: Transition) -> dict[str, Any]:
    body = {
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
    return body | ({"exceptional": True} if move.exceptional else {})


def _effect(effect: Effect) -> list[str | None]:
    return [effect.name, effect.done, effect.failed, *([effect.exclusive] if effect.exclusive else [])]


def checksum(definition: Definition) -> str:
    """SHA-256 (hex) of the recorded form, keys sorted, no white space: equal exactly when behaviour is."""
    return canonical_checksum(recorded(definition))


def canonical_checksum(body: dict[str, Any]) -> str:
    """SHA-256 (hex) of a recorded form, however its keys are ordered."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return sha256(canonical.encode()).hexdigest()


def verdict(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Which part of the version a change asks for (SSOT 9.1.4), and why.

    Args:
        old, new: two `recorded` forms.

    Returns:
        `MAJOR: …`, `MINOR: …` or `PATCH: …`.
    """
    states = set(old["states"]) ^ set(new["states"])
    if states:
        return f"MAJOR: states added or removed: {', '.join(sorted(states))}"
    moves = [{(each["trigger"], each["source"], each["dest"]) for each in form["transitions"]} for form in (old, new)]
    if gone := moves[0] - moves[1]:
        return f"MAJOR: transitions removed: {_arrows(gone)}"
    if added := moves[1] - moves[0]:
        return f"MINOR: transitions added: {_arrows(added)}"
    return "MINOR: guards, follow-ups, effects, deadlines or fields differ" if old != new else "PATCH: words only"


def _arrows(moves: set[tuple[str, str, str]]) -> str:
    return ", ".join(f"{trigger} ({source} → {dest})" for trigger, source, dest in sorted(moves))


def mermaid(definition: Definition) -> str:
    """A `stateDiagram-v2`; `‖` marks an approval point, `?` a guard."""
    lines = ["stateDiagram-v2", f"    [*] --> {definition.initial}"]
    for move in definition.transitions:
        marks = (" ‖ approval" if move.approval else "") + "".join(f" ? {guard.name}" for guard in move.when)
        lines += [f"    {source} --> {move.dest}: {move.trigger}{marks}" for source in move.sources]
    for state, deadline in definition.deadlines.items():
        lines.append(f"    note right of {state}: {deadline.trigger} after {_spoken(deadline)}")
    lines += [f"    {state} --> [*]" for state in definition.states if state in definition.terminal]
    return "\n".join(lines)


def _spoken(deadline: Deadline) -> str:
    hours, minutes = deadline.seconds / HOUR_SECONDS, deadline.seconds / 60
    first = f"{hours:g} h" if hours >= 1 else f"{minutes:g} min" if minutes >= 1 else f"{deadline.seconds:g} s"
    return first + (", growing" if deadline.growth else "")
