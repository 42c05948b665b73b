"""A definition as PostgreSQL: tables, and functions that decide a trigger and make its move."""

import json
from typing import Any

from interlock.workflows.definition import Definition, Transition
from interlock.workflows.forms import parts


def sql(definition: Definition) -> str:
    """A script that makes a schema of its own, `TYPE_VERSION`, for one definition.

    Args:
        definition: its machine.

    Returns:
        SQL for PostgreSQL 15 or later.
    """
    states = (_state(definition, state) for state in definition.states)
    moves = (_move(number, move) for number, move in enumerate(definition.transitions))
    return parts.filled(
        parts.template("machine.sql"),
        TYPE=definition.type,
        VERSION=definition.version,
        SUMMARY=parts.one_line(definition.summary),
        SCHEMA=f'"{parts.identifier(definition)}"',
        STATES=",\n".join(states),
        MOVES=",\n".join(moves),
        BIRTH_EFFECTS=_literal(parts.effects(definition.birth_effects)) + "::jsonb",
    )


def _state(definition: Definition, state: str) -> str:
    deadline = definition.deadlines.get(state)
    timed = (deadline.trigger, parts.seconds(deadline), parts.own_seconds_key(deadline)) if deadline else (None,) * 3
    return _row(state, state == definition.initial, state in definition.terminal, *timed)


def _move(number: int, move: Transition) -> str:
    return _row(
        number,
        move.trigger,
        move.sources,
        move.dest,
        tuple(parts.conditions(move)),
        move.authorities,
        parts.approval(move),
        move.severity,
        move.settles,
        parts.effects(move.effects),
        parts.follow_ups(move),
        parts.relink(move),
    )


def _row(*values: Any) -> str:
    return f"    ({', '.join(map(_literal, values))})"


def _literal(value: Any) -> str:
    """A value as SQL: a tuple as an array of texts, lists and dicts as JSON."""
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"ARRAY[{', '.join(map(_literal, value))}]::text[]"
    text = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).replace("'", "''")
    return f"E'{text}'".replace("\\", "\\\\") if "\\" in text else f"'{text}'"
