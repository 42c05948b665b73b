"""A definition as a machine of XState 5, in a JavaScript module without imports."""

import json
from collections.abc import Iterator
from typing import Any

from interlock.workflows.definition import Definition, Transition
from interlock.workflows.forms import parts


def xstate(definition: Definition) -> str:
    """A JavaScript module with the machine's configuration, and functions that build it and fire its triggers.

    Args:
        definition: its machine.

    Returns:
        An ES module that imports nothing: whoever builds the machine passes XState to it.
    """
    names = dict.fromkeys(name for move in definition.transitions for name in parts.conditions(move))
    deadlines = {
        _deadline_of(state): {"seconds": parts.seconds(each), "key": parts.own_seconds_key(each)}
        for state, each in definition.deadlines.items()
    }
    return parts.filled(
        parts.template("machine.mjs"),
        TYPE=definition.type,
        VERSION=definition.version,
        SUMMARY=parts.one_line(definition.summary),
        FILE=parts.file_name(definition, ".mjs"),
        CONDITIONS=_json(list(names)),
        AUTHORITIES=_json(definition.authorities),
        DEADLINES=_json(deadlines),
        CONFIG=_json(_config(definition)),
    )


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _deadline_of(state: str) -> str:
    return f"deadline of {state}"


def _config(definition: Definition) -> dict[str, Any]:
    return {
        "id": definition.type,
        "version": definition.version,
        "description": definition.summary,
        "initial": definition.initial,
        "entry": [{"type": "effect", "params": each} for each in parts.effects(definition.birth_effects)],
        "states": {state: _state(definition, state) for state in definition.states},
    }


def _state(definition: Definition, state: str) -> dict[str, Any]:
    legal = definition.legal(state)
    body: dict[str, Any] = {"tags": ["terminal"]} if state in definition.terminal else {}
    if not legal:
        return body | {"type": "final"}
    refuse = {"actions": [{"type": "refuse", "params": {"state": state}}]}
    settled = {"actions": [*refuse["actions"], {"type": "settled"}]}
    on: dict[str, Any] = {
        trigger: [*(_fired(move, state) for move in definition.moves[trigger, state]), refuse] for trigger in legal
    }
    on["approval.granted"] = [*_granted(definition, state), settled]
    on["approval.refused"] = [settled]
    body["on"] = on | {"*": [refuse]}
    if deadline := definition.deadlines.get(state):
        fires = {"type": "fire_deadline", "params": {"trigger": deadline.trigger}}
        body["after"] = {_deadline_of(state): {"actions": [fires]}}
    return body


def _fired(move: Transition, source: str) -> dict[str, Any]:
    guard = {"type": "may", "params": {"by": list(move.authorities), "conditions": parts.conditions(move)}}
    if approval := parts.approval(move):
        return {"guard": guard, "actions": [{"type": "hold", "params": {"state": source, **approval}}]}
    return {"guard": guard} | _moved(move, source)


def _granted(definition: Definition, state: str) -> Iterator[dict[str, Any]]:
    for move in definition.transitions:
        if move.approval and state in move.sources:
            guard = {"type": "is_granted", "params": {"trigger": move.trigger, "conditions": parts.conditions(move)}}
            yield {"guard": guard} | _moved(move, state, {"type": "settled"})


def _moved(move: Transition, source: str, *first: dict[str, Any]) -> dict[str, Any]:
    """A move; one that stays in its state leaves out the target, so that its deadline runs on."""
    actions = [
        *first,
        {"type": "moved"},
        *({"type": "effect", "params": each} for each in parts.effects(move.effects)),
        *({"type": "follow_up", "params": each} for each in parts.follow_ups(move)),
    ]
    more = {"meta": {"severity": move.severity, "settles": move.settles, "relink": parts.relink(move)}}
    target = {} if move.dest == source else {"target": move.dest}
    return target | {"actions": actions} | more
