"""Prove that nothing was rewritten: read every instance and event once, in constant memory, and compute it anew."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, select, text

from db import definitions
from db.connect import sql
from db.tables import definition_transitions
from workflows.chain import digest
from workflows.export import canonical_checksum

ROWS_AT_ONCE = 2_000
KEPT_PROBLEMS = 1_000  # of any number; past this, counting is enough

Legal = Mapping[tuple[str, str], frozenset[tuple[str, str, str]]]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written: which instance, at which event (None: the instance itself), and how."""

    instance: str
    seq: int | None
    says: str


@dataclass(slots=True)
class Verdict:
    """What a verification read, and what it found."""

    instances: int = 0
    transitions: int = 0
    found: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing was found."""
        return self.found == 0

    def note(self, instance: object, seq: int | None, says: str) -> None:
        """Add a problem."""
        self.found += 1
        if len(self.problems) < KEPT_PROBLEMS:
            self.problems.append(Problem(str(instance), seq, says))


def verify(engine: Engine, progress: Callable[[int], None] = lambda _: None) -> Verdict:
    """Check, in one snapshot, that every chain is whole, gap-free and legal, and every state what its history says.

    Args:
        engine: the database.
        progress: told the number of events read so far, now and then.

    Returns:
        The verdict; `problems` names the instance and the event each time.
    """
    verdict = Verdict()
    with engine.connect() as connection:
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
        legal = _legal_moves(connection, verdict)
        events = groupby(_stream(connection, "audit_events"), key=lambda event: event.workflow_id)
        owner, history = next(events, (None, iter(())))
        for instance in _stream(connection, "audit_instances"):
            verdict.instances += 1
            while owner is not None and owner < instance.id:
                _orphans(verdict, owner, history)
                owner, history = next(events, (None, iter(())))
            if owner == instance.id:
                _check(verdict, legal, instance, history)
                owner, history = next(events, (None, iter(())))
            else:
                _check(verdict, legal, instance, iter(()))
            if verdict.instances % ROWS_AT_ONCE == 0:
                progress(verdict.transitions)
        while owner is not None:
            _orphans(verdict, owner, history)
            owner, history = next(events, (None, iter(())))
    progress(verdict.transitions)
    return verdict


def _check(verdict: Verdict, legal: Legal, instance: Row[Any], history: Iterator[Row[Any]]) -> None:
    seq, state = 0, None
    previous = digest(b"", instance[-6:])
    for event in history:
        verdict.transitions += 1
        if event.seq != seq + 1:
            verdict.note(instance.id, event.seq, f"gap: event {seq + 1} is missing")
        elif bytes(event.prev_hash) != previous:
            verdict.note(instance.id, event.seq, "chain broken: it does not follow the event before it")
        if bytes(event.hash) != _hash(event):
            verdict.note(instance.id, event.seq, "changed: its hash is not that of its content")
        if state is not None and event.from_state != state:
            verdict.note(instance.id, event.seq, f"leaves {event.from_state!r}, but {state!r} was entered before")
        move = (event.from_state, event.trigger, event.to_state)
        if move not in legal.get((instance.workflow_type, event.definition_version), frozenset()):
            verdict.note(instance.id, event.seq, f"illegal: {event.from_state} → {event.to_state} by {event.trigger}")
        seq, state, previous = event.seq, event.to_state, bytes(event.hash)
    if instance.version != seq:
        verdict.note(instance.id, None, f"made {instance.version} moves, but history ends at {seq}")
    if state is not None and state != instance.current_state:
        verdict.note(instance.id, None, f"stands in {instance.current_state!r}, but history ends in {state!r}")


def _hash(event: Row[Any]) -> bytes:
    fields = (
        event.f1, event.f2, event.f3, event.definition_version, event.from_state, event.to_state, event.trigger,
        event.f8, event.f9, event.f10, event.f11, event.f12,
    )  # fmt: skip
    return digest(bytes(event.prev_hash), fields)


def _orphans(verdict: Verdict, owner: UUID, history: Iterator[Row[Any]]) -> None:
    for event in history:
        verdict.transitions += 1
        verdict.note(owner, event.seq, "belongs to an instance that does not exist")


def _legal_moves(connection: Connection, verdict: Verdict) -> Legal:
    legal: dict[tuple[str, str], frozenset[tuple[str, str, str]]] = {}
    enforced: dict[tuple[str, str], set[tuple[str, str, str]]] = {}
    for row in connection.execute(select(definition_transitions)):
        enforced.setdefault((row.type, row.version), set()).add((row.source, row.trigger, row.dest))
    for definition in definitions.listed(connection):
        key = (definition["type"], definition["version"])
        name = f"definition {key[0]} {key[1]}"
        if canonical_checksum(definition["body"]) != definition["checksum"]:
            verdict.note(name, None, "changed: its checksum is not that of its content")
        legal[key] = frozenset(
            (move["source"], move["trigger"], move["dest"]) for move in definition["body"]["transitions"]
        )
        if frozenset(enforced.get(key, ())) != legal[key]:
            verdict.note(name, None, "changed: the moves PostgreSQL enforces are not those it recorded")
    return legal


def _stream(connection: Connection, name: str) -> Iterator[Row[Any]]:
    streamed = connection.execution_options(stream_results=True, yield_per=ROWS_AT_ONCE)
    yield from streamed.exec_driver_sql(sql(name))
