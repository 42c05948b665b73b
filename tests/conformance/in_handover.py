"""Plays sequences that are handed over to Temporal on their way: the first steps here, the rest there.

`OverThere` has the instance as `decide` leaves it, for any definition; `FromEngine` has the engine freeze it on
PostgreSQL and write the file that is started there.
"""

import json
from collections.abc import Collection, Iterator
from collections.abc import Sequence as Listed
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from uuid_utils.compat import uuid7

from interlock.db.operations.handovers import Choice
from interlock.workers.client.client import Client
from interlock.workers.client.receipts import Receipt
from interlock.workers.definitions import handover_file
from interlock.workers.definitions.handover import freeze
from interlock.workflows.forms.temporal_handover import FORMAT, handed_over, start_of
from tests.conformance import in_engine
from tests.conformance.in_engine import InEngine
from tests.conformance.in_temporal import exported, play_on
from tests.conformance.sequences import Answer, Reference, Sequence, Step
from tests.migrating import HANDING


class OverThere:
    """The exported workers in a directory; each sequence begins in a reference instance, and is handed over."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def play(self, played: Listed[Sequence]) -> Iterator[tuple[Answer, ...]]:
        """The answers to each sequence; those of a definition stand together."""
        with ThreadPoolExecutor(max_workers=1) as thread:
            for definition, group in groupby(played, lambda each: each.definition):
                machine = exported(definition, self._directory).WORKFLOWS[0]
                for one in group:
                    here = Reference(one.definition, one.context)
                    cut = (one.seed // 7) % (len(one.steps) + 1)
                    before = tuple(here.answer(step) for step in one.steps[:cut])
                    start = start_of(json.loads(json.dumps(_said(here))))
                    yield before + thread.submit(play_on, machine, one, start, cut).result()


def _said(here: Reference) -> dict[str, Any]:
    """A reference instance as a handover's file would have it; the ids of approvals are those that Temporal gives."""
    return _instance("instance", here.state, here.version, dict(here.context)) | {
        "deadline": here.timer and {"trigger": here.timer, "seconds": 60.0},
        "votes": {trigger: sorted(names) for trigger, names in here.votes.items()},
        "held": [_held(each) for each in here.held],
        "effects": [],
    }


def _instance(id_: str, state: str, version: int, context: dict[str, Any]) -> dict[str, Any]:
    instance = {"id": id_, "state": state, "version": version, "context": context, "created_by": "ann"}
    more = {"deadline": None, "votes": {}, "pending": [], "head": "", "history": []}
    return {"format": FORMAT, "instance": instance} | more


def _held(step: Step) -> dict[str, Any]:
    id_ = f"instance:{step.trigger}:{step.at_version}"
    fired = {"trigger": step.trigger, "by": step.by, "authority": step.authority, "data": dict(step.metadata)}
    return fired | {"version": step.at_version, "approval": _instance(id_, "pending", 0, {})}


class FromEngine:
    """The engine, whose instances are frozen after some steps, all at once; and the exported workers in a directory."""

    def __init__(self, client: Client, dba: "psycopg.Connection[Any]", directory: Path) -> None:
        self._client = client
        self._engine = InEngine(client, dba)
        self._directory = directory

    def play(self, played: Listed[Sequence]) -> Iterator[tuple[Answer, ...]]:
        """The answers to each sequence, all of one definition; as `in_engine.seen` sees them."""
        definition = played[0].definition
        here = [self._begin(one) for one in played]
        choice = Choice(definition.type, definition.version)
        freeze(self._client.runtime, choice, HANDING)
        path = self._directory / "handover.jsonl"
        handover_file.write_frozen(self._client.runtime, choice, path)
        lines = {UUID(said["instance"]["id"]): said for said in map(handed_over, path.read_text().splitlines())}
        machine = exported(definition, self._directory).WORKFLOWS[0]
        with ThreadPoolExecutor(max_workers=1) as thread:
            for one, (made, before, held) in zip(played, here, strict=True):
                if made not in lines:  # it had ended: nothing goes on there
                    yield before + tuple(map(in_engine.seen, one.answers[len(before) :]))
                    continue
                start = start_of(lines[made])
                for each in start.held:  # the approval keeps its id, which `play_on` does not know
                    receipt = held[each.firing.trigger, each.version]
                    assert (receipt.result or {})["approval_id"] == each.approval_id
                    each.approval_id = f"instance:{each.firing.trigger}:{each.version}"
                some = _until(one, held.keys() - {(each.firing.trigger, each.version) for each in start.held})
                after = thread.submit(play_on, machine, some, start, len(before)).result()
                yield before + tuple(map(in_engine.seen, (*after, *one.answers[len(some.answers) :])))

    def _begin(self, one: Sequence) -> tuple[UUID, tuple[Answer, ...], dict[tuple[str, int], Receipt]]:
        made = self._client.create(one.definition.type, f"H-{uuid7()}", context=dict(one.context), by="ann")["id"]
        held: dict[tuple[str, int], Receipt] = {}
        cut = one.seed % (len(one.steps) + 1)
        return made, tuple(self._engine.answer(made, step, held) for step in one.steps[:cut]), held


def _until(one: Sequence, moot: Collection[tuple[str, int]]) -> Sequence:
    """A sequence up to the step that settles what was held before its instance moved: such approvals stay here."""
    steps = enumerate(one.steps)
    end = next((at for at, each in steps if each.kind == "settle" and (each.trigger, each.at_version) in moot), None)
    return replace(one, steps=one.steps[:end], answers=one.answers[:end])
