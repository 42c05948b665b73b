"""Parts of a definition as JSON, as several forms write them."""

import re
from importlib.resources import files
from typing import Any

from interlock.workflows.definition import Deadline, Definition, Effect, Transition

PLACE = re.compile("__([A-Z]+(?:_[A-Z]+)*)__")


def template(name: str) -> str:
    """The text of a template of this package."""
    return (files("interlock.workflows.forms") / "templates" / name).read_text(encoding="utf-8")


def filled(text: str, **parts: str) -> str:
    """A template with each `__NAME__` replaced; what is put in is not looked through again.

    Args:
        text: the template.
        parts: NAME -> what it is replaced by.
    """
    return PLACE.sub(lambda place: parts[place[1]], text)


def one_line(text: str) -> str:
    """A text as a comment of one line, without characters that are not seen."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def identifier(definition: Definition) -> str:
    """A name for a definition where only letters, digits and `_` are allowed: `story_1_0_0`."""
    return f"{definition.type}_{definition.version}".replace(".", "_").replace("-", "_")


def called(definition: Definition) -> str:
    """What a definition is called: `story@1.0.0`."""
    return f"{definition.type}@{definition.version}"


def conditions(move: Transition) -> list[str]:
    """The names of a move's guards, which its host answers for."""
    return [guard.name for guard in move.when]


def file_name(definition: Definition, suffix: str) -> str:
    """What a file of a definition is called: `story-1.0.0.sql`; one that Python imports `story_1_0_0.py`."""
    return (identifier(definition) if suffix == ".py" else f"{definition.type}-{definition.version}") + suffix


def effects(wanted: tuple[Effect, ...]) -> list[dict[str, Any]]:
    """Effects, with the triggers that tell their outcome."""
    return [
        {"name": each.name, "done": each.done, "failed": each.failed, "exclusive": each.exclusive} for each in wanted
    ]


def follow_ups(move: Transition) -> list[dict[str, Any]]:
    """What a move fires on linked instances."""
    return [{"role": each.role, "trigger": each.trigger} for each in move.then]


def approval(move: Transition) -> dict[str, Any] | None:
    """What a move waits for."""
    point = move.approval
    return None if point is None else {"quorum": point.quorum, "deciders": list(point.deciders)}


def relink(move: Transition) -> dict[str, Any] | None:
    """The link that a move changes."""
    changed = move.relink
    return None if changed is None else {"role": changed.role, "data_key": changed.data_key}


def seconds(deadline: Deadline) -> float:
    """How long an instance may stay, if its context says nothing and it is the first time, grace included."""
    return deadline.seconds + deadline.grace_seconds


def own_seconds_key(deadline: Deadline) -> str | None:
    """The field of the context with the instance's own seconds; None if there is none, or it holds no number."""
    return None if deadline.growth else deadline.context_key


def deadline_acts_itself(definition: Definition, state: str) -> bool:
    """Whether the deadline of a state makes its move by itself: none of its moves is guarded or waits."""
    moves = definition.moves.get((definition.deadlines[state].trigger, state), ())
    return not any(move.when or move.approval for move in moves)


def facts_needed(definition: Definition, trigger: str) -> list[str]:
    """What has to be looked up elsewhere before a trigger can be decided: of `linked`, `named` and `row`."""
    needs = {*definition.needs[trigger]} & {"linked", "named", "row"}
    follows = any(move.then for move in definition.transitions if move.trigger == trigger)
    return sorted(needs | {"linked"} if follows else needs)
