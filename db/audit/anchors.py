"""Anchors: signed hashes of the newest events (heads) of all chains, and comparison of history with them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, RowMapping, text

from interlock.db.audit.snapshot import Snapshot
from interlock.db.schema import in_schema
from interlock.db.statements import queries

sql = queries(__file__)

# Of heads given (from a file), those that history does not have.
_MISSING_OF = in_schema("""
SELECT h.workflow_id, h.seq, COALESCE(t.hash, birth.hash) IS NULL AS gone
  FROM unnest(%(ids)s::uuid[], %(seqs)s::integer[], %(hashes)s::bytea[]) AS h (workflow_id, seq, hash)
  LEFT JOIN interlock.every_transition t ON t.workflow_id = h.workflow_id AND t.seq = h.seq
  LEFT JOIN interlock.every_birth birth ON birth.id = h.workflow_id AND h.seq = 0
 WHERE COALESCE(t.hash, birth.hash) IS DISTINCT FROM h.hash
""")
# Of the heads that anchors recorded of some instances, those that history does not tell. The bounds are repeated,
# because PostgreSQL does not infer them and would join with all of history.
_MISSING_BETWEEN = in_schema("""
SELECT h.workflow_id, h.seq, h.number, COALESCE(t.hash, birth.hash) IS NULL AS gone
  FROM interlock.anchor_heads h
  LEFT JOIN interlock.every_transition t
         ON t.workflow_id = h.workflow_id AND t.seq = h.seq AND t.workflow_id > %(after)s AND t.workflow_id <= %(upto)s
  LEFT JOIN interlock.every_birth birth
         ON birth.id = h.workflow_id AND h.seq = 0 AND birth.id > %(after)s AND birth.id <= %(upto)s
 WHERE h.workflow_id > %(after)s AND h.workflow_id <= %(upto)s AND COALESCE(t.hash, birth.hash) IS DISTINCT FROM h.hash
 ORDER BY h.workflow_id, h.seq
""")


class Head(NamedTuple):
    """An instance's newest event when an anchor was made; seq 0 is its birth."""

    workflow_id: UUID
    seq: int
    hash: bytes

    def line(self) -> bytes:
        """The line that is signed and filed: `UUID SEQ HASH`."""
        return f"{self.workflow_id} {self.seq} {self.hash.hex()}\n".encode()


class Missing(NamedTuple):
    """A recorded head that history no longer matches. `gone`: its event is missing; otherwise its hash differs."""

    workflow_id: UUID
    seq: int
    number: int
    gone: bool


def lock(connection: Connection) -> None:
    """Prevent others from making an anchor or export until this transaction ends, and read from one snapshot."""
    connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    connection.execute(text("SET LOCAL lock_timeout = '60s'"))
    connection.execute(text(in_schema("LOCK TABLE interlock.anchoring IN SHARE ROW EXCLUSIVE MODE")))


def newest(connection: Connection) -> RowMapping | None:
    """The newest anchor: number, made_at, record, proof; `age_seconds` by the database's clock."""
    query = in_schema("SELECT *, extract(epoch FROM now() - made_at)::float8 AS age_seconds FROM interlock.anchors")
    return connection.execute(text(query + " ORDER BY number DESC LIMIT 1")).mappings().one_or_none()


def uncovered_seconds(connection: Connection) -> float:
    """Seconds since the newest anchor if the newest event is not covered by it; 0 if it is covered."""
    query = in_schema("""
        SELECT extract(epoch FROM now() - COALESCE(a.made_at, e.created_at))::float8
          FROM (SELECT created_at FROM interlock.workflow_transitions ORDER BY xid DESC, position DESC LIMIT 1) e
          LEFT JOIN (SELECT max(made_at) AS made_at FROM interlock.anchors) a ON true
         WHERE a.made_at IS NULL OR e.created_at > a.made_at""")
    return float(connection.execute(text(query)).scalar_one_or_none() or 0.0)


def listed(connection: Connection, *, after: int = 0) -> Sequence[RowMapping]:
    """The anchors numbered higher than `after`, in order."""
    query = text(in_schema("SELECT * FROM interlock.anchors WHERE number > :after ORDER BY number"))
    return connection.execute(query, {"after": after}).mappings().all()


def next_after(connection: Connection, number: int) -> RowMapping | None:
    """The first anchor numbered higher than `number`."""
    query = text(in_schema("SELECT * FROM interlock.anchors WHERE number > :number ORDER BY number LIMIT 1"))
    return connection.execute(query, {"number": number}).mappings().one_or_none()


def gather(connection: Connection, number: int) -> int:
    """Record in an anchor the heads of the chains that changed since the last one; returns their number."""
    return connection.exec_driver_sql(sql("anchor_heads"), {"number": number}).rowcount


def heads(connection: Connection, number: int) -> Iterator[Head]:
    """An anchor's heads, streamed in the order of the instances' ids."""
    query = text(
        in_schema(
            "SELECT workflow_id, seq, hash FROM interlock.anchor_heads WHERE number = :number ORDER BY workflow_id, seq"
        )
    )
    streamed = query.execution_options(stream_results=True, yield_per=2_000)
    for row in connection.execute(streamed, {"number": number}):
        yield Head(row.workflow_id, row.seq, bytes(row.hash))


def totals(connection: Connection) -> tuple[int, int]:
    """The numbers of instances and of events, archived ones included."""
    query = in_schema(
        "SELECT (SELECT count(*) FROM interlock.every_instance), (SELECT count(*) FROM interlock.every_transition)"
    )
    row = connection.execute(text(query)).one()
    return row[0], row[1]


def add(connection: Connection, number: int, made_at: Any, record: str, proof: str) -> None:
    """Insert an anchor."""
    query = text(
        in_schema(
            "INSERT INTO interlock.anchors (number, made_at, record, proof) VALUES (:number, :made_at, :record, :proof)"
        )
    )
    connection.execute(query, {"number": number, "made_at": made_at, "record": record, "proof": proof})


def heads_of(connection: Connection, ids: Sequence[UUID]) -> Sequence[tuple[int, Head]]:
    """What anchors recorded of some instances, as (the anchor's number, head), in the order of ids and events."""
    query = in_schema(
        "SELECT number, workflow_id, seq, hash FROM interlock.anchor_heads WHERE workflow_id = ANY(%s)"
        " ORDER BY workflow_id, seq"
    )
    found = connection.exec_driver_sql(query, (list(ids),))
    return [(row.number, Head(row.workflow_id, row.seq, bytes(row.hash))) for row in found]


def missing(snapshot: Snapshot) -> Iterator[Missing]:
    """The heads recorded by the database's anchors that history no longer matches."""
    return (Missing(*row) for row in snapshot.rows(sql("audit_heads")))


def missing_between(connection: Connection, after: UUID, upto: UUID) -> Iterator[Missing]:
    """The same of the instances after one id, up to another."""
    return (Missing(*row) for row in connection.exec_driver_sql(_MISSING_BETWEEN, {"after": after, "upto": upto}))


def missing_of(connection: Connection, heads: Iterable[Head]) -> Sequence[tuple[UUID, int, bool]]:
    """Those of the given heads that history does not match: instance, seq, and whether the event is gone."""
    rows = list(heads)
    columns = {
        "ids": [each.workflow_id for each in rows],
        "seqs": [each.seq for each in rows],
        "hashes": [each.hash for each in rows],
    }
    return [(row[0], row[1], row[2]) for row in connection.exec_driver_sql(_MISSING_OF, columns)]
