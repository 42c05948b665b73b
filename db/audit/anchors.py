"""Anchors: the signed heads of the hash chains, and what history must still tell of them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, RowMapping, text

from interlock.db.audit.snapshot import Snapshot
from interlock.db.connection import sql
from interlock.db.schema import in_schema


class Head(NamedTuple):
    """An instance's newest event when an anchor was made; seq 0 is its birth."""

    workflow_id: UUID
    seq: int
    hash: bytes

    def line(self) -> bytes:
        """As it is signed and filed: `UUID SEQ HASH`."""
        return f"{self.workflow_id} {self.seq} {self.hash.hex()}\n".encode()


class Missing(NamedTuple):
    """A head that history does not tell any more."""

    workflow_id: UUID
    seq: int
    number: int
    gone: bool


def lock(connection: Connection) -> None:
    """Nobody else makes an anchor or an export until this transaction ends; what it reads is of one instant."""
    connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    connection.execute(text("SET LOCAL lock_timeout = '60s'"))
    connection.execute(text(in_schema("LOCK TABLE interlock.anchors IN SHARE ROW EXCLUSIVE MODE")))


def newest(connection: Connection) -> RowMapping | None:
    """The last anchor: number, made_at, body, signature; `age_seconds` by the database's clock."""
    query = in_schema("SELECT *, extract(epoch FROM now() - made_at)::float8 AS age_seconds FROM interlock.anchors")
    return connection.execute(text(query + " ORDER BY number DESC LIMIT 1")).mappings().one_or_none()


def uncovered_seconds(connection: Connection) -> float:
    """For how long the newest event has been covered by no anchor, counted from the last one; 0 where it is covered."""
    query = in_schema("""
        SELECT extract(epoch FROM now() - COALESCE(a.made_at, e.created_at))::float8
          FROM (SELECT created_at FROM interlock.workflow_transitions ORDER BY xid DESC, position DESC LIMIT 1) e
          LEFT JOIN (SELECT max(made_at) AS made_at FROM interlock.anchors) a ON true
         WHERE a.made_at IS NULL OR e.created_at > a.made_at""")
    return float(connection.execute(text(query)).scalar_one_or_none() or 0.0)


def listed(connection: Connection, *, after: int = 0) -> Sequence[RowMapping]:
    """All of them in order, those behind a number."""
    query = text(in_schema("SELECT * FROM interlock.anchors WHERE number > :after ORDER BY number"))
    return connection.execute(query, {"after": after}).mappings().all()


def gather(connection: Connection, number: int) -> int:
    """Take the heads of all that changed since the last anchor into one; how many."""
    return connection.exec_driver_sql(sql("anchor_heads"), {"number": number}).rowcount


def heads(connection: Connection, number: int) -> Iterator[Head]:
    """An anchor's heads in order, streamed."""
    query = text(
        in_schema(
            "SELECT workflow_id, seq, hash FROM interlock.anchor_heads WHERE number = :number ORDER BY workflow_id, seq"
        )
    )
    streamed = query.execution_options(stream_results=True, yield_per=2_000)
    for row in connection.execute(streamed, {"number": number}):
        yield Head(row.workflow_id, row.seq, bytes(row.hash))


def totals(connection: Connection) -> tuple[int, int]:
    """(instances, events) there are."""
    query = in_schema(
        "SELECT (SELECT count(*) FROM interlock.every_instance), (SELECT count(*) FROM interlock.every_transition)"
    )
    row = connection.execute(text(query)).one()
    return row[0], row[1]


def add(connection: Connection, number: int, made_at: Any, body: str, signature: bytes) -> None:
    """Write an anchor down."""
    query = text(
        in_schema(
            "INSERT INTO interlock.anchors (number, made_at, body, signature)"
            " VALUES (:number, :made_at, :body, :signature)"
        )
    )
    connection.execute(query, {"number": number, "made_at": made_at, "body": body, "signature": signature})


def missing(snapshot: Snapshot) -> Iterator[Missing]:
    """Everything that the anchors in the database saw and history no longer tells."""
    return (Missing(*row) for row in snapshot.rows(sql("audit_heads")))


def missing_of(connection: Connection, given: Iterable[Head]) -> Sequence[tuple[UUID, int, bool]]:
    """Of heads from elsewhere, those that history does not tell: instance, seq, whether the event is gone."""
    listed = list(given)
    columns = {
        "ids": [each.workflow_id for each in listed],
        "seqs": [each.seq for each in listed],
        "hashes": [each.hash for each in listed],
    }
    return [(row[0], row[1], row[2]) for row in connection.exec_driver_sql(sql("audit_given_heads"), columns)]
