"""Where a file of canonical events ends: its last whole line, and how many bytes are whole."""

import json
import os
from collections.abc import Iterator
from typing import NamedTuple

from workers.relay import Place

CHUNK = 65_536
FAR = 16 * 2**20  # further back than this nobody looks for the cursor's line: a batch is smaller


class Tail(NamedTuple):
    """A line's event: its place in commit order, its hash (hex), its name."""

    place: Place
    hash: str
    event_id: str


def read_tail(handle: int, cursor: Place) -> tuple[Tail | None, int]:
    """The last whole event of a file, and the bytes up to its end.

    What stands up to the cursor was seen on the disk before the cursor moved; what is behind it may be torn, by a kill
    or by the power: it counts as far as it reads as events in ascending order.

    Args:
        handle: a file descriptor that can be read.
        cursor: the place that the database knows it has.
    """
    size = os.fstat(handle).st_size
    reach = CHUNK
    while True:
        start = max(0, size - reach)
        found = list(_lines(os.pread(handle, size - start, start), start))
        known = max((n for n, (tail, _) in enumerate(found) if tail and tail.place <= cursor), default=None)
        if known is not None or start == 0 or (reach >= FAR and any(tail for tail, _ in found)):
            return _whole(found, start, known)
        reach *= 4


def _whole(found: list[tuple[Tail | None, int]], start: int, known: int | None) -> tuple[Tail | None, int]:
    first = known if known is not None else next((n for n, (tail, _) in enumerate(found) if start and tail), 0)
    last, whole = None, 0
    for tail, end in found[first:]:
        if tail is None or (last is not None and tail.place <= last.place):
            break
        last, whole = tail, end
    return last, whole


def _lines(block: bytes, start: int) -> Iterator[tuple[Tail | None, int]]:
    """Each line of a block, as an event or None, and where it ends; the first is left out where it may be a half."""
    at = 0
    if start:
        at = block.find(b"\n") + 1 or len(block)
    while at < len(block):
        end = block.find(b"\n", at)
        if end < 0:
            yield None, start + len(block)
            return
        yield _event(block[at:end]), start + end + 1
        at = end + 1


def _event(text: bytes) -> Tail | None:
    try:
        event = json.loads(text)
        place = event["context"]["xid"], event["context"]["position"]
        return Tail(place, event["hash"], event["event_id"]) if all(type(each) is int for each in place) else None
    except (ValueError, KeyError, TypeError):
        return None
