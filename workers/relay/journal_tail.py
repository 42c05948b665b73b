"""Finds the end of a file of canonical events: its last whole line, and how many bytes are whole."""

import os
from collections.abc import Iterator
from typing import NamedTuple

from interlock.workers.relay.relay import Place
from interlock.workflows.input.json_text import read

CHUNK = 65_536
FAR = 16 * 2**20  # how far back the cursor's line is looked for: a batch is smaller


class Tail(NamedTuple):
    """The event of a line: its place in commit order, its hash (hex), its id."""

    place: Place
    hash: str
    event_id: str


def read_tail(handle: int, cursor: Place) -> tuple[Tail | None, int]:
    """The last whole event of a file, and the number of bytes up to its end.

    Lines up to the cursor were synced to disk before the cursor moved. Later lines may be torn, by a kill or a power
    failure: they count as long as they are readable events in ascending order.

    Args:
        handle: a readable file descriptor.
        cursor: the place up to which the database knows that the file is complete.
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


def ends_at(handle: int, place: Place) -> bool:
    """Whether a file's last line is whole, and that of the event in this place."""
    block = os.pread(handle, CHUNK, max(0, os.fstat(handle).st_size - CHUNK))
    text = block.removesuffix(b"\n")
    last = _event(text[text.rfind(b"\n") + 1 :]) if text != block else None
    return last is not None and last.place == place


def _whole(found: list[tuple[Tail | None, int]], start: int, known: int | None) -> tuple[Tail | None, int]:
    first = known if known is not None else next((n for n, (tail, _) in enumerate(found) if start and tail), 0)
    last, whole = None, 0
    for tail, end in found[first:]:
        if tail is None or (last is not None and tail.place <= last.place):
            break
        last, whole = tail, end
    return last, whole


def _lines(block: bytes, start: int) -> Iterator[tuple[Tail | None, int]]:
    """Each line of a block as an event or None, and where it ends. A possibly incomplete first line is left out."""
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
        event = read(text)
        place = event["context"]["xid"], event["context"]["position"]
        return Tail(place, event["hash"], event["event_id"]) if all(type(each) is int for each in place) else None
    except (ValueError, KeyError, TypeError):
        return None
