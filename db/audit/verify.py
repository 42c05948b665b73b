"""Verify that history was not rewritten: reads every instance and event once, in constant memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine

from interlock.db.audit import belongings, recorded_moves, schema_state
from interlock.db.audit.snapshot import AHEAD, KEPT, Reading, Snapshot
from interlock.db.core import definitions
from interlock.db.schema import in_schema
from interlock.workflows.audit.chain import digest, digest_bytes

Event = tuple[Any, ...]  # the columns of `_HASHED_EVENTS`
Progress = Callable[[int], None]
Compute = Callable[[Callable[[], None]], None]

CHUNK = 250  # events of one instance that are read and checked at a time

# Events with their fields as they were hashed, in UTF-8.
_HASHED_EVENTS = in_schema("""
SELECT t.workflow_id, t.workflow_type, t.seq, t.xid::text::bigint, t.position, t.prev_hash, t.hash,
       convert_to(t.id::text, 'UTF8'),
       convert_to(t.definition_version, 'UTF8'), convert_to(t.from_state, 'UTF8'), convert_to(t.to_state, 'UTF8'),
       convert_to(t.trigger, 'UTF8'), convert_to(t.triggered_by, 'UTF8'), convert_to(t.request_id, 'UTF8'),
       convert_to(t.authority, 'UTF8'), convert_to(t.proof, 'UTF8'), convert_to(t.login, 'UTF8'),
       convert_to(t.severity, 'UTF8'), convert_to(t.metadata::text, 'UTF8'),
       convert_to(interlock.micros(t.created_at), 'UTF8')
  FROM interlock.every_transition t
""")
# Instances as their birth was hashed.
_HASHED_INSTANCES = in_schema("""
SELECT i.id, i.definition_version, i.current_state, i.version,
       i.context_sha256 = interlock.digest(i.context), i.workflow_type, i.born_version, i.entity_id, i.project,
       i.created_by, interlock.micros(i.created_at), encode(i.context_sha256, 'hex'), i.bodies::text,
       i.born_proof
  FROM interlock.every_instance i
""")
_EVENTS = f"{_HASHED_EVENTS} ORDER BY t.workflow_id, t.seq"  # read in parallel, both in the order of the ids
_INSTANCES = f"{_HASHED_INSTANCES} ORDER BY i.id"
_EVENTS_BETWEEN = f"{_HASHED_EVENTS} WHERE t.workflow_id > %s AND t.workflow_id <= %s ORDER BY t.workflow_id, t.seq"
_INSTANCES_AFTER = f"{_HASHED_INSTANCES} WHERE i.id > %s ORDER BY i.id LIMIT %s"
_EVENTS_OF_SOME = f"{_HASHED_EVENTS} WHERE t.workflow_id = ANY(%s) ORDER BY t.workflow_id, t.seq"
_SOME_INSTANCES = f"{_HASHED_INSTANCES} WHERE i.id = ANY(%s) ORDER BY i.id"
# Of one instance, some after others. The first condition is the index's; the second tells doubled numbers apart.
_EVENTS_OF = f"""{_HASHED_EVENTS}
 WHERE t.workflow_id = %s AND t.seq >= %s AND (t.seq, t.id) > (%s, %s::uuid) ORDER BY t.seq, t.id LIMIT %s
"""
_INSTANCE = f"{_HASHED_INSTANCES} WHERE i.id = %s"
_UNLIKE_HISTORY = in_schema("SELECT named, what FROM interlock.rows_unlike_history() ORDER BY named")


class Instance(NamedTuple):
    """The columns of `_HASHED_INSTANCES`."""

    id: UUID
    definition_version: str
    current_state: str
    version: int
    context_whole: bool
    workflow_type: str  # from here on, what the birth's hash has beside the id
    born_version: str
    entity_id: str
    project: str
    created_by: str
    born_micros: str
    context_sha256: str
    bodies: str | None
    born_proof: str | None


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: the instance, the event (None: the instance itself), and a description."""

    instance: str
    seq: int | None
    message: str


@dataclass(slots=True)
class Verdict(Reading):
    """How much a verification read, the problems it found, and what it did not compare with history, and why."""

    anchors: int = 0
    problems: list[Problem] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)

    def note(self, instance: object, seq: int | None, message: str) -> None:
        """Add a problem."""
        self.found += 1
        if len(self.problems) < KEPT:
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
            rules = _protection(verdict, connection)
        read(verdict, rules, snapshot, progress)
        reading = snapshot.connection()
        _belongings(verdict, lambda query, parameters: reading.execute(query.encode(), parameters))
    return verdict


def verify_instance(connection: Connection, instance_id: UUID, *, compute: Compute = lambda work: work()) -> Verdict:
    """Check one instance's chain as `verify` checks all, in constant memory.

    Args:
        connection: a transaction that reads one snapshot.
        instance_id: an instance that exists, archived or not.
        compute: makes a call that computes for milliseconds: an event loop has it made in a thread.
    """
    verdict = Verdict(instances=1)
    instance = Instance(*connection.exec_driver_sql(_INSTANCE, (instance_id,)).one())
    rules = _rules(connection, instance.workflow_type).get(instance.workflow_type)
    chain = _Chain(verdict, rules or recorded_moves.NO_RULES, instance)
    seq, id_ = -(2**31), str(belongings.FIRST)  # of the last event that was read
    while events := connection.exec_driver_sql(_EVENTS_OF, (instance_id, seq, seq, id_, CHUNK)).all():
        compute(partial(chain.follow, map(tuple, events)))
        seq, id_ = events[-1][2], events[-1][7].decode()
        if len(events) < CHUNK:
            break
    chain.end()
    _belongings(verdict, connection.exec_driver_sql, ids=[instance_id])
    return verdict


def verify_instances(
    connection: Connection, ids: Sequence[UUID], progress: Progress = lambda _: None, *, alone: bool = False
) -> Verdict:
    """Check the chains of some instances, as `verify` checks all, and what PostgreSQL judges all moves by.

    Args:
        connection: a transaction that reads one snapshot.
        ids: instances that exist, archived or not.
        progress: called now and then with the number of events read so far.
        alone: without what PostgreSQL judges by, which takes longer than a hundred chains; for callers with many pages.
    """
    verdict = Verdict()
    rules = _rules(connection) if alone else _protection(verdict, connection)
    instances = connection.exec_driver_sql(_SOME_INSTANCES, (list(ids),)).all()
    options = {"stream_results": True, "max_row_buffer": AHEAD}
    events = connection.exec_driver_sql(_EVENTS_OF_SOME, (list(ids),), execution_options=options)
    _compare(verdict, rules, instances, map(tuple, events), progress)
    _belongings(verdict, connection.exec_driver_sql, ids=ids)
    return verdict


def verify_next(connection: Connection, after: UUID | None, *, limit: int) -> tuple[Verdict, UUID | None]:
    """Check the instances after one, in the order of their ids, as `verify` checks all; first also `_protection`.

    Args:
        connection: a transaction that reads one snapshot.
        after: the id of the last instance that was checked; None: begin with the first.
        limit: how many to check.

    Returns:
        The verdict, and the id of the last instance checked; None: there are no more.
    """
    verdict, begun = Verdict(), after or belongings.FIRST
    rules = _protection(verdict, connection) if after is None else _rules(connection)
    instances = connection.exec_driver_sql(_INSTANCES_AFTER, (begun, limit)).all()
    last = instances[-1][0] if len(instances) == limit else None
    # A cursor: one instance may have more events than fit into memory.
    reading = connection.execution_options(stream_results=True, max_row_buffer=AHEAD)
    upto = last or belongings.LAST
    events = reading.exec_driver_sql(_EVENTS_BETWEEN, (begun, upto))
    _compare(verdict, rules, instances, map(tuple, events), lambda _: None)
    _belongings(verdict, connection.exec_driver_sql, after=begun, upto=upto)
    return verdict, last


def _belongings(verdict: Verdict, execute: belongings.Execute, **which: Any) -> None:
    """Check the rows beside history that belong to some instances, as `belongings.changed` names them."""
    for instance_id, message in belongings.changed(execute, **which):
        verdict.note(instance_id, None, message)


def _protection(verdict: Verdict, connection: Connection) -> dict[str, recorded_moves.Rules]:
    """Check what PostgreSQL judges moves by: the recorded definitions, the schema's functions and triggers, and the
    rows that say who has power; returns the rules of the recorded definitions, which are read once."""
    bodies = definitions.listed(connection)
    unlike = connection.exec_driver_sql(_UNLIKE_HISTORY).all()
    for name, message in (*recorded_moves.changed(connection, bodies), *schema_state.changed(connection), *unlike):
        verdict.note(name, None, message)
    return recorded_moves.rules(bodies)


def _rules(connection: Connection, type_: str | None = None) -> dict[str, recorded_moves.Rules]:
    return recorded_moves.rules(definitions.listed(connection, type_))


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
            _check(verdict, known, instance, ())
        if verdict.instances % AHEAD == 0:
            progress(verdict.transitions)
    while owner is not None:
        _orphans(verdict, owner, history)
        owner, history = next(events, nobody)
    progress(verdict.transitions)


def _check(verdict: Verdict, rules: recorded_moves.Rules, instance: Instance, history: Iterable[Event]) -> None:
    chain = _Chain(verdict, rules, instance)
    chain.follow(history)
    chain.end()


class _Chain:
    """One instance's history, of which events are checked in turn, and then that the instance stands where it ends."""

    def __init__(self, verdict: Verdict, rules: recorded_moves.Rules, instance: Instance) -> None:
        self._verdict, self._rules, self._instance = verdict, rules, instance
        # Of the event before: its number, the state it entered, its hash, version, time, xid and position.
        self._last = 0
        self._state: bytes | None = None
        self._previous = digest(b"", (str(instance.id), *instance[5:]))
        self._version, self._at = instance.born_version.encode(), b""
        self._xid, self._position = 0, 0
        if not instance.context_whole:
            verdict.note(instance.id, None, "its context was changed: the birth has another digest")

    def follow(self, history: Iterable[Event]) -> None:
        """Check the next events, in the order of their numbers."""
        verdict, rules, instance = self._verdict, self._rules, self._instance
        named = str(instance.id).encode()
        last, state, previous = self._last, self._state, self._previous
        last_version, previous_at = self._version, self._at
        last_xid, last_position = self._xid, self._position
        for (
            _,
            type_,
            seq,
            xid,
            position,
            prev_hash,
            hashed,
            id_,
            version,
            source,
            dest,
            trigger,
            *asked,  # by whom, in which request, by which authority, proof, login; and the severity
            metadata,
            at,
        ) in history:
            verdict.transitions += 1
            if seq != last + 1:
                verdict.note(instance.id, seq, f"gap: event {last + 1} is missing")
            elif prev_hash != previous:
                before = "the event before it" if last else "the birth, so what the instance was born with was changed"
                verdict.note(instance.id, seq, f"chain broken: it does not follow {before}")
            fields = (id_, named, b"%d" % seq, version, source, dest, trigger, *asked, metadata, at)
            if hashed != digest_bytes(prev_hash, fields):
                verdict.note(instance.id, seq, "changed: its hash is not that of its content")
            # Microseconds since 1970: as many digits until 2286, so that bytes compare as numbers do.
            if at < previous_at:
                verdict.note(instance.id, seq, "is dated before the event before it")
            if xid < last_xid or position <= last_position:  # both are taken under the partition's lock
                verdict.note(instance.id, seq, "its xid or position was changed: it is before the event before it")
            last_xid, last_position = xid, position
            if type_ != instance.workflow_type:
                verdict.note(instance.id, seq, f"is of a {type_}, but its instance is a {instance.workflow_type}")
            if state is None and (begins := rules.begins(instance.born_version)) not in (None, source.decode()):
                verdict.note(instance.id, seq, f"leaves {source.decode()!r}, but it began in {begins!r}")
            if state is not None and source != state:
                verdict.note(instance.id, seq, f"leaves {source.decode()!r}, but {state.decode()!r} was entered before")
            if message := rules.broken(last_version, version, (source, trigger, dest), (*asked[2:4], metadata)):
                verdict.note(instance.id, seq, message)
            last, state, previous, last_version, previous_at = seq, dest, hashed, version, at
        self._last, self._state, self._previous = last, state, previous
        self._version, self._at = last_version, previous_at
        self._xid, self._position = last_xid, last_position

    def end(self) -> None:
        """Check that the instance stands where its history ends: number, state and version of its last event."""
        verdict, rules, instance = self._verdict, self._rules, self._instance
        last, state, last_version = self._last, self._state, self._version
        if instance.version != last:
            verdict.note(instance.id, None, f"made {instance.version} moves, but history ends at {last}")
        begins = rules.begins(instance.definition_version)
        if last == 0 and begins not in (None, instance.current_state):
            verdict.note(instance.id, None, f"stands in {instance.current_state!r}, but it began in {begins!r}")
        if state is not None and state.decode() != instance.current_state:
            verdict.note(
                instance.id, None, f"stands in {instance.current_state!r}, but history ends in {state.decode()!r}"
            )
        if last_version.decode() != instance.definition_version:
            message = f"is under {instance.definition_version}, but history ends under {last_version.decode()}"
            verdict.note(instance.id, None, message)


def _orphans(verdict: Verdict, owner: UUID, history: Iterator[Event]) -> None:
    for event in history:
        verdict.transitions += 1
        verdict.note(owner, event[2], "belongs to an instance that does not exist")
