"""What agents hand to the client: triggers and instances, applied by the engine, told by the journal."""

import ast
import contextlib
import json
import os
from collections.abc import Callable
from itertools import cycle
from typing import Any
from unittest import mock
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from uuid_utils.compat import uuid7

from interlock.cli.lib.parsing import when
from interlock.db.connection import transaction
from interlock.db.core import history, requests
from interlock.db.core.requests import partition_of
from interlock.supervisor.environment import environment
from interlock.workers.client.client import Client
from interlock.workers.engine.applier import Round
from interlock.workers.engine.trigger_request import Firing
from interlock.workflows.audit.events import born, chained, line, read
from interlock.workflows.audit.log_check import Check
from interlock.workflows.catalogue import WORKFLOWS
from interlock.workflows.errors import BadInput
from tests.fuzz.door import Door, Ground, Target, joined, parts
from tests.fuzz.doors.typed import _afresh, _run
from tests.fuzz.shapes import TEXTS, hostile, tampered, written

ROUNDS = 5  # of a partition, until nothing is left
DEEPER = 60  # frames that a worker's stack is deeper than ours
PRINTED = 50  # every so many inputs are printed as a person would see them
TRIGGERS = ("design_complete", "start_coding", "block", "unblock", "approve", "nonsense")


class Stage:
    """Two stories of one partition: a subject, and another that must still move whatever happens to the subject."""

    def __init__(self, ground: Ground) -> None:
        self.runtime, self.client, self._knocks = ground.runtime, Client(ground.runtime), 0
        self.subject = self._new()
        self.partition = partition_of(self.subject)
        self._witness, self._to_and_fro = self._new(self.partition), cycle(("block", "unblock"))
        self._check = Check.against(WORKFLOWS.values())

    def _new(self, partition: int | None = None) -> UUID:
        while True:
            birth = self.client.birth("story", f"S-{uuid7()}", project=uuid7())
            if partition in (None, partition_of(birth.id)):
                self.client.create_many([birth])
                return birth.id

    def fire(self, firing: Firing) -> None:
        """Fire, apply, and look at what is left behind."""
        try:
            self.client.fire_many([firing])
        finally:
            self.settle(self.subject)
            if self._is_spent():
                self.subject = self._new(self.partition)

    def settle(self, *told: UUID) -> None:
        """Apply what is due everywhere. Afterwards every partition still moves, and the journal tells it."""
        for partition in {self.partition, *map(partition_of, told)}:
            for _ in range(ROUNDS):
                if not _deeper(
                    DEEPER, lambda partition=partition: self.runtime.applier.apply_partition(partition)
                ).taken:  # type: ignore[misc]
                    break
        receipt = self.client.fire(self._witness, next(self._to_and_fro), by="witness")
        self.runtime.applier.apply_partition(self.partition)
        with transaction(self.runtime.database) as connection:
            status = requests.by_ids(connection, [receipt.request_id])[receipt.request_id]["status"]
        assert status == "applied", f"a partition stands still: {status}"
        for instance in told:
            self._told(instance)
        self._knocks += 1
        if told and self._knocks % PRINTED == 1:
            self._printed(told[0])

    def _is_spent(self) -> bool:
        """Whether the subject is at its end, or has something that will be tried again later."""
        with transaction(self.runtime.database) as connection:
            spent = connection.exec_driver_sql(
                "SELECT current_state = 'done' OR EXISTS (SELECT FROM interlock.trigger_requests r"
                " WHERE r.workflow_id = i.id AND r.status IN ('pending', 'scheduled'))"
                " FROM interlock.workflow_instances i WHERE id = %s",
                (self.subject,),
            )
            return bool(spent.scalar_one())

    def _told(self, instance: UUID) -> None:
        """The instance's newest event, as a line of the journal, proves itself."""
        with transaction(self.runtime.database) as connection:
            position = connection.exec_driver_sql(
                "SELECT xid::text::bigint, position - 1 FROM interlock.workflow_transitions WHERE workflow_id = %s"
                " ORDER BY seq DESC LIMIT 1",
                (instance,),
            ).one_or_none()
            events = history.batch(connection, tuple(position), limit=1) if position else ()  # type: ignore[arg-type]
        for row in events:
            event = read(line(dict(row)))
            assert chained(event) == event["hash"]
            assert event["context"]["seq"] > 1 or born(event) == event["prev_hash"]
            for says in self._check.feed(1, line(dict(row))):
                assert not says.startswith(("changed", "no JSON")), says

    def _printed(self, instance: UUID) -> None:
        with mock.patch.dict(os.environ, environment(self.runtime.settings)), _afresh():
            for command in ("show", "history"):
                for words in ([command, str(instance)], [command, str(instance), "--json"]):
                    code, said = _run(words)
                    assert code == 0, said


def _deeper(frames: int, do: Callable[[], Round]) -> Round:
    return _deeper(frames - 1, do) if frames else do()


def value(text: str) -> Any:
    """What a caller hands over: JSON, or any literal of Python."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text


def _firing(ground: Ground) -> Target:
    stage = Stage(ground)

    def fire(data: bytes) -> None:
        trigger, by, request_id, after, said = parts(data, 5)
        given = value(said)
        stage.fire(Firing(stage.subject, trigger, by, request_id, given, when(after) if after else None))

    return fire


NAME = st.sampled_from(("ann", "agent-7", *TEXTS)) | st.text(max_size=12)
DATA: SearchStrategy[bytes] = tampered(({"why": "x", "n": [1, 2.5, None]}, {})).map(written)
NESTED = st.integers(40, 1_000).map(lambda depth: b'{"a":' * depth + b"1" + b"}" * depth)
LITERAL = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=4) | st.complex_numbers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers() | st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
).map(lambda found: repr(found).encode(errors="surrogatepass"))


def _text(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


FIRED = st.builds(
    joined,
    (st.sampled_from(TRIGGERS) | NAME).map(_text),
    NAME.map(_text),
    (st.just("") | NAME).map(_text),
    st.sampled_from(("", "", "", "1s", "9" * 9 + "d", "2026-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00")).map(_text),
    DATA | LITERAL | NESTED | hostile().map(written),
)

REQUESTS = Door(
    "requests",
    "Any trigger is refused or applied, its partition goes on, and its event's hash verifies.",
    _firing,
    FIRED,
    (
        joined("design_complete", "ann", "", "", '{"why": "x"}'),
        joined("block", "ann", "r-1", "1s", "{}"),
        joined("block", "ann", "", "", "{'a': (1, 2)}"),
    ),
    examples=24,
    on_database=True,
)


def _creating(ground: Ground) -> Target:
    stage = Stage(ground)

    def create(data: bytes) -> None:
        type_, entity_id, by, said = parts(data, 4)
        made = stage.client.create(type_, entity_id, project=uuid7(), context=value(said), by=by)
        for trigger in made_legal(stage, made["id"]):
            with contextlib.suppress(BadInput):  # some machines' events must say something
                stage.client.fire(made["id"], trigger, by="ann", data={"reason": "x"})
        stage.settle(made["id"])

    return create


def made_legal(stage: Stage, instance: UUID) -> list[str]:
    """What may be fired at an instance now."""
    return list(stage.client.show(instance)["legal"])


TYPES = tuple(dict.fromkeys(type_ for type_, _ in WORKFLOWS))
CONTEXTS: tuple[Any, ...] = (
    {},
    {"author": "ann", "story_id": "S-1", "reviewers": ["bob"], "quorum": 2, "deciders": ["ann"]},
    {"command": ["true"], "shell": False, "env": {"A": "b"}, "limits": {}, "timeout_sec": 5, "max_retries": 1},
    {"gate_type": "LINT", "command": "x", "shell": True, "moment": "final", "reruns_left": 0, "depends_on": []},
    {"name": "x", "run_id": str(UUID(int=1)), "workstream_id": str(UUID(int=2)), "priority": 1, "task_count": 1},
    {"tool_id": "x", "failure_threshold": 1, "cooldown_seconds": 1, "patch_id": "p", "allowed_paths": ["**"]},
    {"worker_type": "w", "capabilities": ["a"], "capacity": 1, "pid": 1, "node": "n", "type": "t"},
)

CONTEXTS_DOOR = Door(
    "contexts",
    "Any context for a new instance is refused, or the instance can be moved, shown and verified.",
    _creating,
    st.builds(
        joined,
        (st.sampled_from(TYPES) | NAME).map(_text),
        (st.builds("E-{}".format, st.integers(0)) | NAME).map(_text),
        NAME.map(_text),
        tampered(CONTEXTS).map(written) | LITERAL | NESTED,
    ),
    tuple(joined(type_, "E-1", "ann", written(context)) for type_ in TYPES for context in CONTEXTS[:1]),
    examples=30,
    on_database=True,
)
