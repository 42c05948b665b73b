"""What `interlock definitions handover` wrote of an instance, as the input of its workflow (docs/forms.md)."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from interlock.workflows.audit.events import born, chained
from interlock.workflows.errors import BadInput
from interlock.workflows.forms.temporal_values import (
    EffectWanted,
    TemporalEffect,
    TemporalFiring,
    TemporalHeld,
    TemporalHistory,
    TemporalPending,
    TemporalStart,
)
from interlock.workflows.input.json_text import read

FORMAT = "interlock.handover/1"
CARRIED_BYTES = 256 * 1024  # of history in a workflow's input: Temporal refuses a payload of 2 MiB
Said = Mapping[str, Any]


def handed_over(line: str) -> Said:
    """An instance of a handover's file, its history verified.

    Args:
        line: of the file.

    Raises:
        BadInput: it is no such line, or its history was changed.
    """
    try:
        said: Said = json.loads(line)
        if said["format"] != FORMAT:
            raise BadInput(f"this file has the format {said['format']!r}, and {FORMAT} is known here")
        _verify(read(line))
    except (KeyError, TypeError, ValueError) as wrong:
        raise BadInput(f"this is no whole line of a handover's file: {wrong}") from wrong
    return said


def start_of(said: Said) -> TemporalStart:
    """The input of the workflow that an instance goes on as.

    Args:
        said: the instance, as `handed_over` returns it.
    """
    start = _left(said, _own(said["history"], said["instance"]["id"]))
    start.held = [_held(each, said["history"]) for each in said["held"]]
    start.effects = [_effect(each, said["instance"]) for each in said["effects"]]
    return start


def _verify(said: Said) -> None:
    heads: dict[str, str] = {}
    for event in said["history"]:
        owner = event["context"]["workflow_id"]
        before = heads.get(owner) or born(event)
        if event["prev_hash"] != before or event["hash"] != chained(event):
            raise BadInput(f"the history of {owner} was changed at event {event['context']['seq']}")
        heads[owner] = event["hash"]
    for each in (said, *(held["approval"] for held in said["held"])):
        instance = each["instance"]
        if instance["version"] and heads.get(instance["id"]) != each["head"]:
            raise BadInput(f"the history of {instance['id']} lacks its last event")


def _left(said: Said, events: Sequence[dict[str, Any]]) -> TemporalStart:
    """An instance where it stands, without what follows from it elsewhere."""
    instance, deadline = said["instance"], said["deadline"]
    return TemporalStart(
        by=instance["created_by"],
        **{name: instance[name] for name in ("context", "state", "version")},
        votes=said["votes"],
        due_in=deadline and deadline["seconds"],
        pending=[_pending(each) for each in said["pending"]],
        history=_carried(events, said["head"]),
    )


def _own(events: Sequence[dict[str, Any]], id_: str) -> list[dict[str, Any]]:
    return [event for event in events if event["context"]["workflow_id"] == id_]


def _carried(events: Sequence[dict[str, Any]], head: str) -> TemporalHistory:
    """The newest events, as many as a workflow's input can take; the file has all."""
    left, taken = CARRIED_BYTES, 0
    for event in reversed(events):
        left -= len(json.dumps(event))
        if left < 0:
            break
        taken += 1
    return TemporalHistory(list(events[len(events) - taken :]), len(events) - taken, head)


def _firing(said: Said) -> TemporalFiring:
    return TemporalFiring(said["trigger"], said["by"], said["authority"], said["data"], said.get("if_version"))


def _pending(said: Said) -> TemporalPending:
    at = said["at"] and datetime.fromisoformat(said["at"]).timestamp()
    return TemporalPending(_firing(said), said["bound_version"], said["granted"], at)


def _held(said: Said, events: Sequence[dict[str, Any]]) -> TemporalHeld:
    id_ = said["approval"]["instance"]["id"]
    return TemporalHeld(_firing(said), said["version"], id_, _left(said["approval"], _own(events, id_)))


def _effect(said: Said, instance: Said) -> TemporalEffect:
    wanted = EffectWanted(
        workflow_id=instance["id"],
        definition=f"{instance['type']}@{instance['definition_version']}",
        name=said["name"],
        idempotency_key=said["id"],  # as attempts in Interlock had it
        state=said["state"],
        version=said["version"],
        context=instance["context"],
        trigger=said["trigger"],
        by=said["by"],
        from_state=said["from_state"],
        data=said["data"],
    )
    return TemporalEffect(wanted, said["done"], said["failed"])
