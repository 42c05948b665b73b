"""Check an event log line by line: schema, legal moves, invariants, time, hash chain.

Memory use grows with the number of entities in the log, not with its lines.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from interlock.workflows.audit.events import born, chained, event_type, reason_of
from interlock.workflows.audit.log_invariants import Open, contradictions, is_told_by_interlock
from interlock.workflows.audit.log_schema import LogEvent, parse, shown, wrong
from interlock.workflows.audit.log_versions import Versions, judge, versions_of
from interlock.workflows.definition import Definition
from interlock.workflows.input.json_text import printed
from interlock.workflows.versioning.migration import MIGRATE


@dataclass(slots=True)
class Entity:
    """The state of an entity after its last line."""

    versions: Versions
    state: str
    line: int
    at: datetime
    seq: int | None
    hash: str | None
    named: tuple[str, str | None]
    retries: int = 0


@dataclass(slots=True)
class Check:
    """Checks one log. Several files that continue each other are one log.

    Attributes:
        events: the number of lines that were valid events.
    """

    known: Mapping[str, Versions]
    events: int = 0
    _entities: dict[tuple[str, str], Entity] = field(default_factory=dict)
    _types: dict[str, str] = field(default_factory=dict)
    _tasks: Open = field(default_factory=dict)
    _last: LogEvent | None = None

    @classmethod
    def against(cls, definitions: Iterable[Definition]) -> "Check":
        """A check against these definitions, older versions included."""
        return cls(versions_of(definitions))

    def feed(self, line: int, text: str | bytes) -> Iterator[str]:
        """Check the next line; yields one sentence for each problem, with the expected value."""
        if not text.strip():
            yield "empty line; expected an event"
            return
        try:
            event, raw = parse(text)
        except ValueError as error:
            yield from wrong(error)
            return
        self.events += 1
        yield from self._order(event)
        self._last = event
        if event.is_move:
            yield from self._move(line, event, raw)

    def _order(self, event: LogEvent) -> Iterator[str]:
        last = self._last
        if last is None:
            return
        if (
            event.place and last.place
        ):  # compare commit order instead of time: an event's time is when its transaction began
            if event.place <= last.place:
                yield f"commit order goes back: {event.place} follows {last.place}"
        elif event.timestamp < last.timestamp:
            yield f"time goes back: {_at(event.timestamp)} follows {_at(last.timestamp)}"

    def _move(self, line: int, event: LogEvent, raw: dict[str, Any]) -> Iterator[str]:
        type_ = event.entity_type or event.named_type or self._types.get(event.entity_id)
        if type_ is None:
            yield "entity_type is missing, and no line before has it"
            return
        self._types[event.entity_id] = type_
        if event.named_type not in (None, type_):
            yield f"event_type is {event.event_type}, but entity_type is {type_}"
        if event.from_state is None or event.to_state is None:
            yield "from_state or to_state is missing; a move has both"
            return
        if type_ not in self.known:
            yield f"entity_type {type_!r} is unknown; expected one of {', '.join(sorted(self.known))}"
            return
        key = type_, event.context.workflow_id or event.entity_id
        before = self._entities.get(key)
        versions, message = self._under(event, type_, before)
        yield from message
        judged = judge(event, versions)
        yield from [judged.message] if judged.message else []
        yield from _follows(event, before, judged.versions)
        yield from _chain(event, raw, before)
        yield from contradictions(event, type_, before.retries if before else 0, self._tasks)
        self._entities[key] = Entity(
            judged.versions,
            event.to_state,
            line,
            event.timestamp,
            event.context.seq,
            event.hash,
            (event.entity_id, event.context.project),
            _retries(event, type_, before),
        )

    def _under(self, event: LogEvent, type_: str, before: Entity | None) -> tuple[Versions, list[str]]:
        if event.definition_version is None:
            return (before.versions if before else self.known[type_]), []
        named = tuple(each for each in self.known[type_] if each.version == event.definition_version)
        if not named:
            versions = ", ".join(each.version for each in reversed(self.known[type_]))
            return self.known[type_], [f"{type_} {event.definition_version} is unknown; expected one of {versions}"]
        if before and len(before.versions) == 1 and before.versions != named and event.trigger != MIGRATE:
            was = before.versions[0].version
            return named, [f"is under {event.definition_version}, but line {before.line} left it under {was}"]
        return named, []


def _follows(event: LogEvent, before: Entity | None, versions: Versions) -> Iterator[str]:
    seq = event.context.seq
    if before is None:
        initial = {each.initial for each in versions}
        if seq == 1 and event.from_state not in initial and event.trigger != MIGRATE:
            yield f"is the first, but leaves {event.from_state!r}; expected {' or '.join(sorted(initial))}"
        return
    if event.from_state != before.state:
        yield f"leaves {event.from_state!r}, but line {before.line} entered {before.state!r}; expected that"
    if event.timestamp < before.at:
        yield f"its entity's time goes back: {_at(event.timestamp)} follows {_at(before.at)} of line {before.line}"
    if seq is not None and before.seq is not None and seq != before.seq + 1:
        yield f"gap: seq {seq} follows {before.seq} of line {before.line}; expected {before.seq + 1}"


def _chain(event: LogEvent, raw: dict[str, Any], before: Entity | None) -> Iterator[str]:
    if before and (event.hash is None) != (before.hash is None):
        yield f"has {'a' if event.hash else 'no'} hash, but line {before.line} has {'none' if event.hash else 'one'}"
    if event.hash is None:
        return
    yield from _derived(event, raw)
    try:
        if chained(raw) != event.hash:
            yield "changed: its hash is not that of its content"
        if before is None and event.context.seq == 1 and born(raw) != event.prev_hash:
            yield "changed: its first hash is not that of its birth"
    except (KeyError, TypeError, ValueError) as missing:
        yield f"has a hash, but not all that was hashed: {missing}"
    if before and before.hash and event.prev_hash != before.hash:
        yield f"chain broken: it does not follow line {before.line}"
    if before and (event.entity_id, event.context.project) != before.named:
        yield f"changed: line {before.line} calls it {before.named[0]!r} of project {before.named[1]}"


def _derived(event: LogEvent, raw: dict[str, Any]) -> Iterator[str]:
    """Compare the fields that are not hashed, because they repeat metadata, with the metadata."""
    metadata = event.metadata or {}
    expected = {
        "reason": reason_of(metadata),
        "operator": metadata.get("operator"),
        "event_type": event_type(str(event.entity_type), metadata),
    }
    for name, value in expected.items():
        if printed(raw.get(name)) != printed(value):
            yield f"changed: {name} is {shown(raw.get(name))}, but its metadata say {shown(value)}"


def _retries(event: LogEvent, type_: str, before: Entity | None) -> int:
    count = (event.metadata or {}).get("retry_count") if is_told_by_interlock(event, type_) else None
    return count if type(count) is int else before.retries if before else 0


def _at(instant: datetime) -> str:
    return instant.isoformat(timespec="microseconds")
