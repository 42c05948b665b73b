"""Cursors: an event's place in commit order as text, by which a reader goes on after it (EVENT-18).

A place is (transaction id, position). After a restored backup transaction ids begin again below some that were used;
there they count as higher ones, so that a later event always has a greater cursor.
"""

import re
from collections.abc import Sequence

from interlock.workflows.errors import BadInput

Place = tuple[int, int]

EPOCH = 2**40  # more transactions than a server makes between a backup and the loss of its data
BEGINNING = "0"  # the cursor before the first event
FORM = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?")


def named(xid: int, restored: Sequence[int]) -> int:
    """A transaction id as cursors use it: after a restored backup, above all ids used before the restore.

    Events that the backup contains keep their ids.

    Args:
        xid: the transaction's own id.
        restored: the first transaction id after each restore, ascending.
    """
    return xid + EPOCH * sum(first <= xid for first in restored)


def cursor_of(place: Place, restored: Sequence[int]) -> str:
    """The cursor of a place. Cursors sort as text as their events were committed."""
    return text_of((named(place[0], restored), place[1]))


def text_of(order: Place) -> str:
    """The cursor for a place whose transaction id is `named` already."""
    return f"{order[0]:016}-{order[1]:016}"


def order_of(cursor: str) -> Place:
    """What a cursor says: the transaction id as `named`, and the position.

    Raises:
        BadInput: it is no cursor.
    """
    said = FORM.fullmatch(cursor) if isinstance(cursor, str) else None
    if said is None:
        raise BadInput(f"{str(cursor)[:60]!r} is no cursor: give that of an event, or {BEGINNING!r} for the beginning")
    return int(said[1]), int(said[2] or 0)


def place_of(order: Place, restored: Sequence[int]) -> Place:
    """The place behind which a reader goes on in history that stands at this cursor.

    If the cursor is that of an event which a restore took away, that is where history went on after the restore.

    Raises:
        BadInput: the cursor is of another database, which was restored more often.
    """
    epoch, xid = divmod(order[0], EPOCH)
    _require_known(epoch, len(restored))
    if epoch < len(restored) and xid >= restored[epoch]:
        return restored[epoch], 0
    return xid, order[1]


def not_ahead(order: Place, now: Place) -> Place:
    """Where a reader with a cursor goes on. A cursor that is ahead of history is of a server that lost its last second.

    Args:
        order: the cursor's.
        now: behind which all events stand that are committed from now on.

    Raises:
        BadInput: the cursor is of another database, which was restored more often.
    """
    _require_known(order[0] // EPOCH, now[0] // EPOCH)
    return min(order, now)


def _require_known(epoch: int, restores: int) -> None:
    if epoch > restores:
        raise BadInput("this cursor is of another database: it names a restore that this one has not had")
