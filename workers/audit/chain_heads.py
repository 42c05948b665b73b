"""Heads of chains that somebody outside of history saw, against what history tells now."""

from collections.abc import Iterable, Iterator
from itertools import islice
from uuid import UUID

from sqlalchemy import Engine

from db import anchors
from db.anchors import Head
from db.audit import Verdict
from db.connect import transaction

AT_ONCE = 5_000  # heads looked up in one statement


def compare(database: Engine, verdict: Verdict, heads: Iterable[Head], witness: str) -> None:
    """Note the heads that history does not tell.

    Args:
        database: where history is.
        verdict: gets a problem for each.
        heads: what was seen.
        witness: who saw it, for the problem's words.
    """
    seen = iter(heads)
    while batch := list(islice(seen, AT_ONCE)):
        with transaction(database) as connection:
            for workflow_id, seq, gone in anchors.missing_of(connection, batch):
                note_lost(verdict, workflow_id, seq, gone, witness)


def note_lost(verdict: Verdict, workflow_id: UUID, seq: int, gone: bool, witness: str) -> None:
    """Note a head that history does not tell: its event is `gone`, or is another one."""
    event = f"event {seq}" if seq else "its birth"
    says = f"{witness} saw {event}, which is gone" if gone else f"{witness} saw another {event} than there is now"
    verdict.note(workflow_id, seq, f"{'cut' if gone else 'forged'}: {says}")


def parsed(lines: Iterable[str]) -> Iterator[Head]:
    """The heads of an anchor's file, `UUID SEQ HASH` a line. Raises `ValueError` where one is none."""
    for line in lines:
        workflow_id, seq, hashed = line.split()
        yield Head(UUID(workflow_id), int(seq), bytes.fromhex(hashed))
