"""Compares a log in commit order (the journal, exports) with history, in both directions and in constant memory.

Both are read once, side by side, as one merges sorted lists: an event that only one of them has shows at once.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Engine

from interlock.db.audit import anchors, commit_order
from interlock.db.audit.anchors import Head
from interlock.db.audit.commit_order import Place, Placed
from interlock.db.audit.snapshot import Snapshot
from interlock.db.audit.verify import Verdict
from interlock.db.connection import transaction
from interlock.workers.audit import chain_heads
from interlock.workflows.audit.events import chained
from interlock.workflows.input.json_text import read

START: Place = (0, 0)
LARGEST = 2**63 - 1
AT_ONCE = 5_000  # events looked up per statement


class LogLine(NamedTuple):
    """An event as a line of a log has it. `where`: the line, as `FILE:LINE`."""

    event: Placed
    where: str


class Log(NamedTuple):
    """A log to compare.

    Attributes:
        name: what it is called in problems.
        lines: its events; those that come after a line that cannot be read are compared all the same.
        after: the place behind which it begins; None: its first line is the first event to compare.
        upto: up to where it must be complete; None: as far as its last line.
    """

    name: str
    lines: Iterable[LogLine]
    after: Place | None = START
    upto: Place | None = None


def read_line(verdict: Verdict, text: bytes, where: str) -> Iterator[LogLine]:
    """Read a line of a log, and check that it is what was hashed. Nothing is yielded for a line that is no event."""
    try:
        event = read(text)
        found = LogLine(_placed(event), where)
        message = None if chained(event) == event["hash"] else "changed: its hash is not that of its content"
    except (ValueError, KeyError, TypeError, RecursionError):  # the last: to say what is nested too deeply
        verdict.note(where, None, "no event; `interlock audit validate` says more")
        return
    if message:
        verdict.note(where, None, f"{message}; `interlock audit validate` says more")
    yield found


def _placed(event: Any) -> Placed:
    context = event["context"]
    place = place_in(context)
    head = chain_heads.seen(context["workflow_id"], context["seq"], event["hash"])
    return Placed(place, head.workflow_id, head.seq, head.hash)


def place_in(named: Any) -> Place:
    """A place in commit order, from its `xid` and `position`. Raises `ValueError`, `KeyError` or `TypeError`."""
    place = named["xid"], named["position"]
    if not all(type(each) is int and 0 <= each <= LARGEST for each in place):
        raise ValueError("no place in commit order")
    return place


def compare(database: Engine, snapshot: Snapshot, verdict: Verdict, log: Log) -> int:
    """Report the events that only the log or only history has, and those that differ.

    Args:
        database: where history is.
        snapshot: history, as it was when the log had all the lines that are read, or later.
        verdict: gets a problem for each event that history lacks or has changed, for each run of events that the log
            lacks, and for each line that is out of order.
        log: what is compared.

    Returns:
        How many events history has after the end of the log.
    """
    lines = iter(log.lines)
    first = list(islice(lines, 1))
    after = log.after
    if after is None:
        after = (first[0].event.place[0], first[0].event.place[1] - 1) if first else START
    walk = _Walk(database, verdict, log.name, commit_order.events(snapshot, after), after)
    for line in (*first, *lines):
        walk.meet(line)
    walk.look_up()
    return walk.finish(log.upto)


class _Walk:
    """The two readers, side by side: `here` is the next event of history, `last` the place of the last line."""

    def __init__(self, database: Engine, verdict: Verdict, name: str, events: Iterator[Placed], after: Place) -> None:
        self._database, self._verdict, self._name, self._events = database, verdict, name, events
        self._here, self._last = next(events, None), after
        self._doubtful: list[Head] = []

    def meet(self, line: LogLine) -> None:
        """Compare a line with the event of history at its place."""
        event = line.event
        if event.place <= self._last:
            self._verdict.note(
                line.where, None, "out of order: a line before it has this place in commit order, or a later one"
            )
            return
        self._last = event.place
        self._lacking(event.place, f"before {line.where}")
        here = self._here
        if here is not None and here.place == event.place:
            if (here.workflow_id, here.seq) != (event.workflow_id, event.seq):
                self._note_lacking(here, here, 1, f"in place of {line.where}")
            self._here = next(self._events, None)
        if here != event:
            self._doubtful.append(Head(*event[1:]))
        if len(self._doubtful) == AT_ONCE:
            self.look_up()

    def look_up(self) -> None:
        """Say what became of the events that history does not have where the log has them."""
        heads, self._doubtful = self._doubtful, []
        with transaction(self._database) as connection:
            missing = anchors.missing_of(connection, heads) if heads else ()
        for workflow_id, seq, gone in missing:
            chain_heads.note_lost(self._verdict, workflow_id, seq, gone, self._name)
        known: set[tuple[UUID, int]] = {(workflow_id, seq) for workflow_id, seq, _ in missing}
        for head in heads:
            if head[:2] not in known:
                message = f"moved: {self._name} has it at another place in commit order (xid, position) than history"
                self._verdict.note(head.workflow_id, head.seq, message)

    def finish(self, upto: Place | None) -> int:
        """Report what the log lacks at its end; returns the number of events after that."""
        if upto is not None:
            self._lacking((upto[0], upto[1] + 1), "at the end")
        return sum(1 for _ in self._events) + (self._here is not None)

    def _lacking(self, before: Place, where: str) -> None:
        first, last, count = self._here, self._here, 0
        while self._here is not None and self._here.place < before:
            last, count, self._here = self._here, count + 1, next(self._events, None)
        if first is not None and last is not None and count:
            self._note_lacking(first, last, count, where)

    def _note_lacking(self, first: Placed, last: Placed, count: int, where: str) -> None:
        more = f", and {count - 1} events after it, up to event {last.seq} of {last.workflow_id}" if count > 1 else ""
        self._verdict.note(first.workflow_id, first.seq, f"not in {self._name}: this event{more} ({where})")
