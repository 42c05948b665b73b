"""Compares heads of chains, as recorded outside of history, with history."""

from collections.abc import Iterable, Iterator
from itertools import islice
from uuid import UUID

from sqlalchemy import Engine

from interlock.db.audit import anchors
from interlock.db.audit.anchors import Head
from interlock.db.audit.verify import Verdict
from interlock.db.connection import transaction

MOST_EVENTS = 2**31 - 1  # of an instance: the limit of PostgreSQL's integer
AT_ONCE = 5_000  # heads looked up per statement


def compare(database: Engine, verdict: Verdict, heads: Iterable[Head], witness: str) -> None:
    """Report the heads that differ from history.

    Args:
        database: where history is.
        verdict: gets a problem for each.
        heads: the recorded heads.
        witness: where they were recorded, for the problem's text.
    """
    seen = iter(heads)
    while batch := list(islice(seen, AT_ONCE)):
        with transaction(database) as connection:
            for workflow_id, seq, gone in anchors.missing_of(connection, batch):
                note_lost(verdict, workflow_id, seq, gone, witness)


def note_lost(verdict: Verdict, workflow_id: UUID, seq: int, gone: bool, witness: str) -> None:
    """Report a head that differs from history: its event is `gone`, or is another one."""
    event = f"event {seq}" if seq else "its birth"
    message = f"{witness} saw {event}, which is gone" if gone else f"{witness} saw another {event} than there is now"
    verdict.note(workflow_id, seq, f"{'cut' if gone else 'forged'}: {message}")


def parsed(lines: Iterable[str]) -> Iterator[Head]:
    """The heads of an anchor's file, `UUID SEQ HASH` a line. Raises `ValueError` for any other line."""
    for line in lines:
        workflow_id, seq, hashed = line.split()
        yield seen(workflow_id, seq, hashed)


def seen(workflow_id: object, seq: object, hashed: object) -> Head:
    """A recorded head. Raises `ValueError` if the values are not valid."""
    number = int(str(seq))
    if not 0 <= number <= MOST_EVENTS:
        raise ValueError(f"no event has the number {number}")
    return Head(UUID(str(workflow_id)), number, bytes.fromhex(str(hashed)))
