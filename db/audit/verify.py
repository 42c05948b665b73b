"""Verify that history was not rewritten: reads every instance and event once, in constant memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine

from interlock.db.audit import recorded_moves
from interlock.db.audit.snapshot import AHEAD, Snapshot
from interlock.db.schema import in_schema
from interlock.workflows.audit.chain import digest, digest_bytes

KEPT_PROBLEMS = 1_000  # of any number; past this, counting is enough

Event = tuple[Any, ...]  # the columns of `_HASHED_EVENTS`
Progress = Callable[[int], None]

# Events with their fields as they were hashed, in UTF-8.
_HASHED_EVENTS = in_schema("""
SELECT t.workflow_id, t.seq, t.prev_hash, t.hash, convert_to(t.id::text, 'UTF8'),
       convert_to(t.definition_version, 'UTF8'), convert_to(t.from_state, 'UTF8'), convert_to(t.to_state, 'UTF8'),
       convert_to(t.trigger, 'UTF8'), convert_to(t.triggered_by, 'UTF8'), convert_to(t.request_id, 'UTF8'),
       convert_to(t.severity, 'UTF8'), convert_to(t.metadata::text, 'UTF8'),
       convert_to(interlock.micros(t.created_at), 'UTF8')
  FROM interlock.every_transition t
""")
# Instances as their birth was hashed.
_HASHED_INSTANCES = in_schema("""
SELECT i.id, i.workflow_type, i.definition_version, i.current_state, i.version, i.entity_id, i.project,
       i.created_by, interlock.micros(i.created_at)
  FROM interlock.every_instance i
""")
_EVENTS = f"{_HASHED_EVENTS} ORDER BY t.workflow_id, t.seq"  # read in parallel, both in the order of the ids
_INSTANCES = f"{_HASHED_INSTANCES} ORDER BY i.id"
_EVENTS_BETWEEN = f"{_HASHED_EVENTS} WHERE t.workflow_id > %s AND t.workflow_id <= %s ORDER BY t.workflow_id, t.seq"
_INSTANCES_AFTER = f"{_HASHED_INSTANCES} WHERE i.id > %s ORDER BY i.id LIMIT %s"
_EVENTS_OF = f"{_HASHED_EVENTS} WHERE t.workflow_id = %s ORDER BY t.seq"
_INSTANCE = f"{_HASHED_INSTANCES} WHERE i.id = %s"


class Instance(NamedTuple):
    """The columns of `_HASHED_INSTANCES`."""

    id: UUID
    workflow_type: str
    definition_version: str
    current_state: str
    version: int
    entity_id: str
    project: str
    created_by: str
    born_micros: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the instance, the event (None: the instance itself), and a description."""

    instance: str
    seq: int | None
    message: str


@dataclass(slots=True)
class Verdict:
    """How much a verification read, and the problems it found."""

    instances: int = 0
    transitions: int = 0
    anchors: int = 0
    found: int = 0
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return self.found == 0

    def note(self, instance: object, seq: int | None, message: str) -> None:
        """Add a problem."""
        self.found += 1
        if len(self.problems) < KEPT_PROBLEMS:
            self.problems.append(Problem(str(instance), seq, message))


def verify(engine: Engine, progress: Progress = lambda _: None) -> Verdict:
    """Check in one snapshot that every chain is complete and legal, and that every state agrees with its history.

    Args:
        engine: the database.
        progress: called now and then with the number of events read so far.

    Returns:
        The verdict; each of its `problems` names the instance and the event.

    Raises:
        DBAPIError: the database is unreachable.
    """
    verdict = Verdict()
    with Snapshot(engine) as snapshot:
        with engine.connect() as connection:
            rules = recorded_moves.recorded(connection)
            for name, message in recorded_moves.changed(connection):
                verdict.note(name, None, message)
        read(verdict, rules, snapshot, progress)
    return verdict


def verify_instance(connection: Connection, instance_id: UUID) -> Verdict:
    """Check one instance's chain as `verify` checks all.

    Args:
        connection: a transaction that reads one snapshot.
        instance_id: an instance that exists, archived or not.
    """
    verdict = Verdict(instances=1)
    instance = Instance(*connection.exec_driver_sql(_INSTANCE, (instance_id,)).one())
    rules = recorded_moves.recorded(connection, instance.workflow_type).get(instance.workflow_type)
    events = connection.exec_driver_sql(_EVENTS_OF, (instance_id,)).all()
    _check(verdict, rules or recorded_moves.NO_RULES, instance, iter(tuple(event) for event in events))
    return verdict


def verify_next(connection: Connection, after: UUID | None, *, limit: int) -> tuple[Verdict, UUID | None]:
    """Check the instances after one, in the order of their ids, as `verify` checks all; the first also the definitions.

    Args:
        connection: a transaction that reads one snapshot.
        after: the id of the last instance that was checked; None: begin with the first.
        limit: how many to check.

    Returns:
        The verdict, and the id of the last instance checked; None: there are no more.
    """
    verdict, begun = Verdict(), after or UUID(int=0)
    if after is None:
        for name, message in recorded_moves.changed(connection):
            verdict.note(name, None, message)
    instances = connection.exec_driver_sql(_INSTANCES_AFTER, (begun, limit)).all()
    last = instances[-1][0] if len(instances) == limit else None
    # A cursor: one instance may have more events than fit into memory.
    reading = connection.execution_options(stream_results=True, max_row_buffer=AHEAD)
    events = reading.exec_driver_sql(_EVENTS_BETWEEN, (begun, last or UUID(int=2**128 - 1)))
    _compare(verdict, recorded_moves.recorded(connection), instances, map(tuple, events), lambda _: None)
    return verdict, last


def read(verdict: Verdict, rules: dict[str, recorded_moves.Rules], snapshot: Snapshot, progress: Progress) -> None:
    """Read instances and their events in parallel, both in the order of the instances' ids."""
    _compare(verdict, rules, snapshot.rows(_INSTANCES), snapshot.rows(_EVENTS), progress)


def _compare(
    verdict: Verdict,
    rules: dict[str, recorded_moves.Rules],
    instances: Iterable[Sequence[Any]],
    histories: Iterable[Event],
    progress: Progress,
) -> None:
    events = groupby(histories, key=itemgetter(0))
    nobody: tuple[None, Iterator[Event]] = (None, iter(()))
    owner, history = next(events, nobody)
    for row in instances:
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
    last, state, last_version, previous_at = 0, None, None, b""
    named = str(instance.id).encode()
    previous = digest(b"", (named.decode(), instance.workflow_type, *instance[5:]))
    for _, seq, prev_hash, hashed, id_, version, source, dest, trigger, by, request, severity, metadata, at in history:
        verdict.transitions += 1
        if seq != last + 1:
            verdict.note(instance.id, seq, f"gap: event {last + 1} is missing")
        elif prev_hash != previous:
            verdict.note(instance.id, seq, "chain broken: it does not follow the event before it")
        fields = (id_, named, b"%d" % seq, version, source, dest, trigger, by, request, severity, metadata, at)
        if hashed != digest_bytes(prev_hash, fields):
            verdict.note(instance.id, seq, "changed: its hash is not that of its content")
        if at < previous_at:  # microseconds since 1970: as many digits until 2286, so that bytes compare as numbers do
            verdict.note(instance.id, seq, "is dated before the event before it")
        if state is not None and source != state:
            verdict.note(instance.id, seq, f"leaves {source.decode()!r}, but {state.decode()!r} was entered before")
        if message := rules.broken(last_version, version, (source, trigger, dest), metadata):
            verdict.note(instance.id, seq, message)
        last, state, previous, last_version, previous_at = seq, dest, hashed, version, at
    if instance.version != last:
        verdict.note(instance.id, None, f"made {instance.version} moves, but history ends at {last}")
    if state is not None and state.decode() != instance.current_state:
        verdict.note(instance.id, None, f"stands in {instance.current_state!r}, but history ends in {state.decode()!r}")
    if last_version is not None and last_version.decode() != instance.definition_version:
        message = f"is under {instance.definition_version}, but history ends under {last_version.decode()}"
        verdict.note(instance.id, None, message)


def _orphans(verdict: Verdict, owner: UUID, history: Iterator[Event]) -> None:
    for event in history:
        verdict.transitions += 1
        verdict.note(owner, event[1], "belongs to an instance that does not exist")
