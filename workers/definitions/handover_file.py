"""Writes frozen instances to a file, one a line: where each stands, what goes with it, and its verified history."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.audit.verify import verify_instances
from interlock.db.connection import one_snapshot, transaction
from interlock.db.core import approvals, history, instances
from interlock.db.fast_path import Row
from interlock.db.operations import handovers
from interlock.db.operations.handovers import Choice, Frozen, HeldRequest, OpenEffect
from interlock.workers.definitions.handover import Progress
from interlock.workers.runtime import Runtime
from interlock.workflows.audit.events import line, timestamp
from interlock.workflows.errors import Refused
from interlock.workflows.input.arguments import door

FORMAT = "interlock.handover/1"
PAGE = 100  # instances in memory at once


class Unverified(Refused):
    """History is not as it was written, so that nothing is handed over with it. `interlock audit verify` names all."""


@dataclass(slots=True)
class HandoverFile:
    """What was written: so many instances, and so many links of theirs to live instances that stay here."""

    path: str
    instances: int = 0
    links_that_stay: int = 0


@door
def write_frozen(runtime: Runtime, choice: Choice, path: Path, progress: Progress = lambda _, __: None) -> HandoverFile:
    """Write all instances of a version that are frozen and not confirmed (HANDOVER-6).

    Args:
        runtime: whose database.
        choice: the version, and the project, if only its instances are meant.
        path: the file; it gets its name when it is complete, and replaces an older one.
        progress: called with the number of instances written, and their total.

    Raises:
        Unverified: a history was changed; the file is not written.
        OSError: the file cannot be written.
    """
    written = HandoverFile(str(path))
    draft = path.with_name(f".{path.name}.part")
    try:
        with draft.open("w", encoding="utf-8") as file, runtime.database.connect() as reading:
            total = handovers.count_frozen(reading, choice)
            for page in handovers.frozen(reading, choice, size=PAGE):
                reading.rollback()
                for text in _lines(runtime, page, written):
                    file.write(text + "\n")
                progress(written.instances, max(total, written.instances))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return written


def _lines(runtime: Runtime, page: Sequence[Frozen], written: HandoverFile) -> Iterator[str]:
    with transaction(runtime.database) as connection:
        one_snapshot(connection)
        found = _Found.of(connection, page, first=not written.instances)
    for each in page:
        written.instances += 1
        written.links_that_stay += sum(link["stays"] for link in found.links[each.instance_id])
        yield found.line(each)


@dataclass(frozen=True, slots=True)
class _Found:
    """What belongs to a page of instances, and to the approvals that hold their triggers, by their ids."""

    frozen: Mapping[UUID, Frozen]
    held: Mapping[UUID, list[HeldRequest]] = field(default_factory=lambda: defaultdict(list))
    effects: Mapping[UUID, list[OpenEffect]] = field(default_factory=lambda: defaultdict(list))
    votes: Mapping[UUID, dict[str, list[str]]] = field(default_factory=lambda: defaultdict(dict))
    links: Mapping[UUID, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    events: Mapping[UUID, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, connection: Connection, page: Sequence[Frozen], *, first: bool) -> "_Found":
        ids = [each.instance_id for each in page]
        waiting = handovers.held(connection, ids)
        approving = {each.held_by for each in waiting if each.held_by is not None and not each.granted}
        frozen = {each.instance_id: each for each in page} | handovers.frozen_among(connection, approving)
        found, every = cls(frozen), list(frozen)
        if problems := verify_instances(connection, every, alone=not first).problems:
            worst = problems[0]
            raise Unverified(f"{worst.instance}: {worst.message}. See `interlock audit verify`")
        for request in handovers.held(connection, every):
            found.held[request.workflow_id].append(request)
        for effect in handovers.open_effects(connection, every):
            found.effects[effect.workflow_id].append(effect)
        for vote in approvals.votes(connection, every):
            found.votes[vote["workflow_id"]].setdefault(vote["trigger"], []).append(vote["triggered_by"])
        for event in history.of_instances(connection, every):
            found.events[event["workflow_id"]].append(dict(event))
        linked = instances.linked(connection, ids)
        staying = handovers.staying(connection, {row["id"] for row in linked})
        for row in linked:
            found.links[row["workflow_id"]].append(_link(row, stays=row["id"] in staying))
        return found

    def line(self, each: Frozen) -> str:
        holding = [
            (request, approval)
            for request in self.held[each.instance_id]
            if not request.granted and request.held_for == each.at and request.held_by is not None
            if (approval := self.frozen.get(request.held_by)) is not None
        ]
        effects = [self._effect(effect) for effect in self.effects[each.instance_id]]
        held = [
            _request(request) | {"version": request.held_for, "approval": self._instance(approval)}
            for request, approval in holding
        ]
        said = self._instance(each) | {"held": held, "effects": effects, "links": self.links[each.instance_id]}
        whose = [each, *(approval for _, approval in holding)]
        # As the journal has them, byte for byte: their hashes can be computed from it.
        events = ", ".join(line(event) for one in whose for event in self.events[one.instance_id])
        return json.dumps(said, ensure_ascii=False)[:-1] + f', "history": [{events}]}}'

    def _instance(self, each: Frozen) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "handover": {
                "id": str(each.handover_id),
                "by": each.by,
                "reason": each.reason,
                "frozen_at": timestamp(each.frozen_at),
            },
            "instance": {
                "id": str(each.instance_id),
                "type": each.type,
                "definition_version": each.version,
                "entity_id": each.entity_id,
                "project": each.project,
                "state": each.state,
                "version": each.at,
                "context": each.context,
                "created_by": each.created_by,
                "created_at": timestamp(each.created_at),
            },
            "deadline": None
            if each.due_in is None
            else {"trigger": each.deadline, "seconds": max(0.0, each.due_in.total_seconds())},
            "votes": self.votes[each.instance_id],
            "pending": [_pending(request, each) for request in self.held[each.instance_id] if _goes_on(request)],
            "head": each.head,
        }

    def _effect(self, effect: OpenEffect) -> dict[str, Any]:
        asked = next((each for each in self.events[effect.workflow_id] if each["seq"] == effect.version), None)
        return {
            "id": str(effect.id),
            "name": effect.name,
            "version": effect.version,
            "state": effect.state,
            "trigger": effect.trigger,
            "by": effect.by,
            "from_state": asked and asked["from_state"],
            "data": asked["metadata"] if asked else {},
            "done": effect.done_trigger,
            "failed": effect.failed_trigger,
        }


def _goes_on(request: HeldRequest) -> bool:
    """Whether a held request is a trigger to be fired there: no deadline, and nothing that waits for an approval."""
    return request.origin != "timer" and (request.held_by is None or request.granted)


def _request(request: HeldRequest) -> dict[str, Any]:
    return {
        "request_id": request.request_id,
        "trigger": request.trigger,
        "by": request.triggered_by,
        "authority": request.authority,
        "data": request.metadata,
    }


def _pending(request: HeldRequest, of: Frozen) -> dict[str, Any]:
    callers = request.origin == "agent" and request.authority not in ("machinery", "effect") and not request.granted
    return _request(request) | {
        "if_version": request.bound_version if callers else None,
        "bound_version": None if callers else request.bound_version,
        "granted": request.granted,
        "at": timestamp(request.not_before) if request.not_before > of.frozen_at else None,
    }


def _link(row: Row, *, stays: bool) -> dict[str, Any]:
    return {
        "role": row["role"],
        "id": str(row["id"]),
        "type": row["workflow_type"],
        "entity_id": row["entity_id"],
        "state": row["current_state"],
        "stays": stays,
    }
