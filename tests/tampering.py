"""Manipulations of history by somebody with all rights in the database, with its protections switched off."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from structlog.testing import capture_logs

from interlock.workers.audit.verification import compare_evidence, verify_some
from interlock.workers.runtime import Runtime

Dba = psycopg.Connection[Any]

TABLES = "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'interlock'::regnamespace AND relkind = 'r'"
HISTORY = ("trigger_requests", "workflow_transitions", "workflow_instances")  # an instance, its events and requests
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


@dataclass(frozen=True)
class Tampering:
    """SQL of a superuser.

    Args:
        what: what it does, for people.
        sql: the statements; names in braces are ids that the test knows.
        where: whom a verification names; `{story}`, or a part of the name of something else.
        rechained: whether all hashes after it are then computed anew.
        of_schema: whether it changes the schema, and no rows.
        recorded_anew: whether the changed schema is then recorded as if a migration had left it.
        to_files: what it does to files besides.
        applied: whether the engine, with its protections on again, then applies what is due.
    """

    what: str
    sql: str
    where: str = "{story}"
    rechained: bool = False
    of_schema: bool = False
    recorded_anew: bool = False
    to_files: Callable[[Path, Path], None] = lambda audit, state: None
    applied: bool = False


def together(*kinds: Sequence[Tampering]) -> list[tuple[Tampering, ...]]:
    """Rounds of one of each kind, for as long as there are any: what is of another kind touches other things."""
    return [tuple(each for each in round_ if each) for round_ in zip_longest(*kinds)]


def found_by_itself(runtime: Runtime) -> list[Mapping[str, Any]]:
    """What the verification that runs by itself tells of the chains, and then of what stands beside them."""
    with capture_logs() as lines:
        found = verify_some(runtime) + compare_evidence(runtime)
    told = [line for line in lines if line["event"] == "history_changed"]
    assert found == len(told)
    return told


def assert_found(said: Collection[str], expected: Mapping[str, str]) -> None:
    """That a verification says of each thing that was done where it was done."""
    assert len({*expected.values()}) == len(expected)
    missed = [what for what, where in expected.items() if not any(where in each for each in said)]
    assert missed == [], said


def tamper(dba: Dba, statements: str) -> None:
    """Execute SQL with the protections of the tables off that it names."""
    if statements:
        with unprotected(dba, *_tables_of(dba, statements)):
            dba.execute(statements.encode())


def _tables_of(dba: Dba, statements: str) -> list[str]:
    words = set(re.findall(r"\w+", statements))
    return [name for (name,) in dba.execute(TABLES).fetchall() if name in words]


@contextmanager
def unprotected(dba: Dba, *only: str) -> Iterator[Dba]:
    """Switch triggers off for the duration of a block, of all tables or some; on again afterwards, without a trace."""
    tables = only or [name for (name,) in dba.execute(TABLES).fetchall()]
    switch = "ALTER TABLE {} {} TRIGGER ALL"
    dba.execute("; ".join([switch.format(table, "DISABLE") for table in tables]).encode())
    dba.execute("SET session_replication_role = replica")
    try:
        yield dba
    finally:
        dba.execute("RESET session_replication_role")
        dba.execute("; ".join([switch.format(table, "ENABLE") for table in tables]).encode())
        dba.execute("SELECT interlock.always()")


def cut_tail(dba: Dba, instance: UUID, keep: int) -> None:
    """Cut an instance's history with its requests, and reset its state to match: the rest is consistent in itself."""
    with unprotected(dba, *HISTORY):
        dba.execute(
            "DELETE FROM trigger_requests WHERE workflow_id = %s AND (result->>'seq')::integer > %s", (instance, keep)
        )
        dba.execute("DELETE FROM workflow_transitions WHERE workflow_id = %s AND seq > %s", (instance, keep))
        dba.execute(
            "UPDATE workflow_instances i SET version = t.seq, current_state = t.to_state FROM workflow_transitions t"
            " WHERE i.id = %s AND t.workflow_id = i.id AND t.seq = %s",
            (instance, keep),
        )


def forge(dba: Dba, instance: UUID, seq: int, column: str, value: Any) -> None:
    """Change an event and its request alike, and recompute the hashes of the instance's chain."""
    with unprotected(dba, *HISTORY):
        dba.execute(
            f"UPDATE trigger_requests SET {column} = %s WHERE workflow_id = %s AND result->>'seq' = %s",
            (value, instance, str(seq)),
        )
        dba.execute(
            f"UPDATE workflow_transitions SET {column} = %s WHERE workflow_id = %s AND seq = %s", (value, instance, seq)
        )
        dba.execute(RECHAIN % {"id": instance})


def erase(dba: Dba, instance: UUID) -> None:
    """Delete every trace of an instance."""
    with unprotected(dba, *HISTORY):
        for table, column in (
            ("trigger_requests", "workflow_id"),
            ("workflow_transitions", "workflow_id"),
            ("workflow_instances", "id"),
        ):
            dba.execute(f"DELETE FROM {table} WHERE {column} = %s", (instance,))
