"""Manipulations of history by somebody with all rights in the database, with its protections switched off."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg

Dba = psycopg.Connection[Any]

RECHAIN = """
DO $$
DECLARE
    each record;
    previous bytea;
BEGIN
    SELECT birth_hash(i) INTO previous FROM workflow_instances i WHERE id = '%(id)s';
    FOR each IN SELECT * FROM workflow_transitions WHERE workflow_id = '%(id)s' ORDER BY seq LOOP
        UPDATE workflow_transitions SET prev_hash = previous WHERE id = each.id;
        UPDATE workflow_transitions t SET hash = event_hash(t) WHERE id = each.id
        RETURNING hash INTO previous;
    END LOOP;
END $$
"""


@contextmanager
def unprotected(dba: Dba) -> Iterator[Dba]:
    """Switch all triggers off for the duration of a block, and on again afterwards, which leaves no trace."""
    tables = ("workflow_instances", "workflow_transitions", "anchors", "anchor_heads", "definition_transitions")
    for table in tables:
        dba.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
    dba.execute("SET session_replication_role = replica")
    try:
        yield dba
    finally:
        dba.execute("RESET session_replication_role")
        for table in tables:
            dba.execute(f"ALTER TABLE {table} ENABLE TRIGGER ALL")


def cut_tail(dba: Dba, instance: UUID, keep: int) -> None:
    """Cut an instance's history, and reset its state to match, so that the rest is consistent in itself."""
    with unprotected(dba):
        dba.execute("DELETE FROM workflow_transitions WHERE workflow_id = %s AND seq > %s", (instance, keep))
        dba.execute(
            "UPDATE workflow_instances i SET version = t.seq, current_state = t.to_state FROM workflow_transitions t"
            " WHERE i.id = %s AND t.workflow_id = i.id AND t.seq = %s",
            (instance, keep),
        )


def forge(dba: Dba, instance: UUID, seq: int, column: str, value: Any) -> None:
    """Change an event, and recompute the hashes of the instance's chain."""
    with unprotected(dba):
        dba.execute(
            f"UPDATE workflow_transitions SET {column} = %s WHERE workflow_id = %s AND seq = %s", (value, instance, seq)
        )
        dba.execute(RECHAIN % {"id": instance})


def erase(dba: Dba, instance: UUID) -> None:
    """Delete every trace of an instance."""
    with unprotected(dba):
        for table, column in (
            ("trigger_requests", "workflow_id"),
            ("workflow_transitions", "workflow_id"),
            ("workflow_instances", "id"),
        ):
            dba.execute(f"DELETE FROM {table} WHERE {column} = %s", (instance,))
