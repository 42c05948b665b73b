"""Approvals: what they hold, who has voted, and what they release."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from sqlalchemy import Connection, RowMapping, not_, or_, select

from interlock.db.core.instances import InstanceRow, of_portion
from interlock.db.core.portions import NEWEST, Portion
from interlock.db.fast_path import Row
from interlock.db.schema import in_schema
from interlock.db.statements import Rows, queries, returning
from interlock.db.tables.core import instances, requests

sql = queries(__file__)

# What an approval holds counts only until its instance moves: then it is superseded, and may be fired anew
# (APPROVAL-5).
_HELD = in_schema("""
SELECT r.held_by, r.workflow_id, r.trigger
  FROM interlock.trigger_requests r
  JOIN interlock.workflow_instances i ON i.id = r.workflow_id
 WHERE r.{column} = ANY(%(ids)s) AND r.status = 'waiting' AND interlock.held_for(r.held_by) = i.version
""")
_HELD_ON, _HELD_BY = _HELD.format(column="workflow_id"), _HELD.format(column="held_by")
_VOTES = in_schema("""
SELECT t.workflow_id, t.trigger, t.triggered_by
  FROM interlock.workflow_transitions t
 WHERE t.workflow_id = ANY(%(ids)s) AND t.trigger <> 'definition.migrate' AND NOT t.metadata ? 'override'
   AND t.seq > COALESCE((SELECT max(e.seq) FROM interlock.workflow_transitions e
                          WHERE e.workflow_id = t.workflow_id AND e.from_state <> e.to_state), 0)
""")
_TERMS = in_schema("""
SELECT i.id, i.context->>'author' AS author, COALESCE((i.context->'quorum')::integer, 1) AS quorum,
       COALESCE(i.context->'deciders', '[]') AS deciders
  FROM interlock.workflow_instances i
 WHERE i.id = ANY(%(ids)s)
""")
# The event that decided an approval is its last.
_RELEASING = in_schema("""
SELECT r.seq, a.id, a.entity_id, a.context->'deciders' AS deciders, t.metadata->'votes' AS votes,
       CASE WHEN t.metadata ? 'override' THEN t.triggered_by END AS overridden_by
  FROM interlock.trigger_requests r
  JOIN interlock.workflow_instances a ON a.id = r.held_by
  JOIN interlock.workflow_transitions t ON (t.workflow_id, t.seq) = (a.id, a.version)
 WHERE r.seq = ANY(%(seqs)s)
""")


def pending(connection: Connection, portion: Portion = NEWEST, *, decider: str | None = None) -> list[InstanceRow]:
    """Approvals that are to be decided, newest first.

    Args:
        connection: any.
        portion: which of them.
        decider: only those that this name may approve: it is one of their deciders, if they name any, and not the
            author (APPROVAL-2). Who has voted already may be among them.
    """
    context = instances.c.context
    query = select(instances).where(instances.c.workflow_type == "approval", instances.c.current_state == "pending")
    if decider is not None:
        anybody = or_(not_(context.has_key("deciders")), context["deciders"] == [])
        query = query.where(
            or_(anybody, context["deciders"].has_key(decider)), context["author"].astext.is_distinct_from(decider)
        )
    return of_portion(connection, query, portion)


def votes(connection: Connection, ids: Iterable[UUID]) -> Sequence[RowMapping]:
    """(workflow_id, trigger, triggered_by) of the moves, no overrides, that left these instances in their states."""
    return connection.exec_driver_sql(_VOTES, {"ids": list(ids)}).mappings().all()


def terms(connection: Connection, ids: Iterable[UUID]) -> Sequence[RowMapping]:
    """(id, author, quorum, deciders) of approvals: without deciders, everybody but the author may decide."""
    return connection.exec_driver_sql(_TERMS, {"ids": list(ids)}).mappings().all()


def held(connection: Connection, ids: Iterable[UUID]) -> Sequence[RowMapping]:
    """(held_by, workflow_id, trigger) of the requests held on these instances, as these stand now."""
    return connection.exec_driver_sql(_HELD_ON, {"ids": list(ids)}).mappings().all()


def waiting_for(connection: Connection, approval_id: UUID, *, limit: int) -> Sequence[RowMapping]:
    """The oldest requests that an approval holds: request_id, workflow_id, trigger, triggered_by, metadata and
    accepted_at.
    """
    columns = ("request_id", "workflow_id", "trigger", "triggered_by", "metadata", "accepted_at")
    query = select(*(requests.c[each] for each in columns))
    query = query.where(requests.c.held_by == approval_id, requests.c.status == "waiting").order_by(requests.c.seq)
    return connection.execute(query.limit(limit)).mappings().all()


def releasable(connection: Connection, ids: Iterable[UUID]) -> set[UUID]:
    """Those of these approvals that still hold a trigger whose instance has not moved since."""
    return set(connection.exec_driver_sql(_HELD_BY, {"ids": list(ids)}).scalars())


def release(connection: Connection, decided: Rows) -> list[Row]:
    """Release or refuse the requests held for decided approvals; returns them."""
    return returning(connection, sql("release"), decided)


def releasing(connection: Connection, seqs: Sequence[int]) -> Sequence[RowMapping]:
    """The approvals that released these requests: (seq, id, entity_id, deciders, votes, overridden_by)."""
    return connection.exec_driver_sql(_RELEASING, {"seqs": list(seqs)}).mappings().all()
