"""Prove that nothing was rewritten: read every instance and event once, in constant memory, and compute it anew."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Engine

from interlock.db.audit import recorded_moves
from interlock.db.audit.snapshot import AHEAD, Snapshot
from interlock.db.connection import sql
from interlock.workflows.audit.chain import digest, digest_bytes

KEPT_PROBLEMS = 1_000  # of any number; past this, counting is enough

Event = tuple[Any, ...]  # the columns of audit_events.sql
Progress = Callable[[int], None]


class Instance(NamedTuple):
    """The columns of audit_instances.sql."""

    id: UUID
    workflow_type: str
    definition_version: str
    current_state: str
    version: int
    entity_id: str
    project_id: str
    created_by: str
    born_micros: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it was written: which instance, at which event (None: the instance itself), and how."""

    instance: str
    seq: int | None
    message: str


@dataclass(slots=True)
class Verdict:
    """What a verification read, and what it found."""

    instances: int = 0
    transitions: int = 0
    anchors: int = 0
    found: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing was found."""
        return self.found == 0

    def note(self, instance: object, seq: int | None, message: str) -> None:
        """Add a problem."""
        self.found += 1
        if len(self.problems) < KEPT_PROBLEMS:
            self.problems.append(Problem(str(instance), seq, message))


def verify(engine: Engine, progress: Progress = lambda _: None) -> Verdict:
    """Check, in one snapshot, that every chain is whole, gap-free and legal, and every state what its history says.

    Args:
        engine: the database.
        progress: told the number of events read so far, now and then.

    Returns:
        The verdict; `problems` names the instance and the event each time.

    Raises:
        DBAPIError: the database is away.
    """
    verdict = Verdict()
    with Snapshot(engine) as snapshot:
        with engine.connect() as connection:
            rules = recorded_moves.recorded(connection)
            for name, message in recorded_moves.changed(connection, rules):
                verdict.note(name, None, message)
        read(verdict, rules, snapshot, progress)
    return verdict


def read(verdict: Verdict, rules: dict[str, recorded_moves.Rules], snapshot: Snapshot, progress: Progress) -> None:
    """Walk through instances and their events side by side, both in the instances' order."""
    events = groupby(snapshot.rows(sql("audit_events")), key=itemgetter(0))
    nobody: tuple[None, Iterator[Event]] = (None, iter(()))
    owner, history = next(events, nobody)
    for row in snapshot.rows(sql("audit_instances")):
        instance = Instance(*row)
        verdict.instances += 1
        while owner is not None and owner < instance.id:
            _orphans(verdict, owner, history)
            owner, history = next(events, nobody)
        known = rules.get(instance.workflow_type, recorded_moves.NO_RULES)
        if owner == instance.id:
            _check(verdict, known, instance, history)
            owner, history = next(events, nobody)
        else:
            _check(verdict, known, instance, iter(()))
        if verdict.instances % AHEAD == 0:
            progress(verdict.transitions)
    while owner is not None:
        _orphans(verdict, owner, history)
        owner, history = next(events, nobody)
    progress(verdict.transitions)


def _check(verdict: Verdict, rules: recorded_moves.Rules, instance: Instance, history: Iterator[Event]) -> None:
    last, state, under, then = 0, None, None, b""
    named = str(instance.id).encode()
    previous = digest(b"", (named.decode(), instance.workflow_type, *instance[5:]))
    for _, seq, prev_hash, hashed, id_, version, source, dest, trigger, by, request, severity, said, at in history:
        verdict.transitions += 1
        if seq != last + 1:
            verdict.note(instance.id, seq, f"gap: event {last + 1} is missing")
        elif prev_hash != previous:
            verdict.note(instance.id, seq, "chain broken: it does not follow the event before it")
        fields = (id_, named, b"%d" % seq, version, source, dest, trigger, by, request, severity, said, at)
        if hashed != digest_bytes(prev_hash, fields):
            verdict.note(instance.id, seq, "changed: its hash is not that of its content")
        if at < then:  # microseconds since 1970: as many digits until 2286, so that bytes compare as numbers do
            verdict.note(instance.id, seq, "is dated before the event before it")
        if state is not None and source != state:
            verdict.note(instance.id, seq, f"leaves {source.decode()!r}, but {state.decode()!r} was entered before")
        if message := rules.broken(under, version, (source, trigger, dest), said):
            verdict.note(instance.id, seq, message)
        last, state, previous, under, then = seq, dest, hashed, version, at
    if instance.version != last:
        verdict.note(instance.id, None, f"made {instance.version} moves, but history ends at {last}")
    if state is not None and state.decode() != instance.current_state:
        verdict.note(instance.id, None, f"stands in {instance.current_state!r}, but history ends in {state.decode()!r}")
    if under is not None and under.decode() != instance.definition_version:
        message = f"is under {instance.definition_version}, but history ends under {under.decode()}"
        verdict.note(instance.id, None, message)


def _orphans(verdict: Verdict, owner: UUID, history: Iterator[Event]) -> None:
    for event in history:
        verdict.transitions += 1
        verdict.note(owner, event[1], "belongs to an instance that does not exist")
