"""The archive: ended instances move there with their whole history, and can be read there."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Column, Connection, DateTime, MetaData, RowMapping, Table, Text, Uuid, func, select, text
from sqlalchemy.dialects.postgresql import JSONB

from interlock.db.core.history import EventRow, of_instance
from interlock.db.schema import SCHEMA, in_schema
from interlock.db.statements import queries
from interlock.db.tables.core import instances, transitions

sql = queries(__file__)

ARCHIVE = MetaData(schema=SCHEMA)  # a separate collection, since few queries read archived rows

# What an archived instance is linked to, in either direction: all of it was archived with it.
_LINKED = in_schema("""
SELECT l.role, i.workflow_type, i.entity_id, i.current_state
  FROM (SELECT role, target_id AS other FROM interlock.archived_links WHERE source_id = %(id)s
        UNION ALL
        SELECT inverse, source_id FROM interlock.archived_links WHERE target_id = %(id)s) l
  JOIN interlock.archived_instances i ON i.id = l.other
 ORDER BY i.created_at, i.id
""")


def _like(name: str, table: Table, *more: Column[Any]) -> Table:
    columns = [Column(each.name, each.type, primary_key=each.primary_key) for each in table.columns]
    return Table(name, ARCHIVE, *columns, *more)


archived_instances = _like("archived_instances", instances, Column("archived_at", DateTime(timezone=True)))
archived_transitions = _like("archived_transitions", transitions)
records = Table(
    "archived_records",
    ARCHIVE,
    Column("kind", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("workflow_id", Uuid),
    Column("body", JSONB),
)


LEFT = (  # the tables that archiving deletes rows from
    *("workflow_transitions", "workflow_instances", "workflow_links", "trigger_requests", "effects", "tasks"),
    *("workstreams", "task_claims", "test_gates", "patch_ledger_entries", "patches", "supervised_workers", "jobs"),
)


class ArchiveMoved(NamedTuple):
    """How much was moved; `held`: the reason why nothing was."""

    held: str | None
    instances: int
    events: int


def seeds(connection: Connection, after: UUID | None, *, older_than: timedelta, limit: int) -> Sequence[UUID]:
    """Instances after `after` that ended long ago, ordered by id; a run stands for its members, which are left out."""
    parameters = {"after": after, "older_than": older_than, "limit": limit}
    return connection.exec_driver_sql(sql("archive_seeds"), parameters).scalars().all()


def closure(connection: Connection, ids: Sequence[UUID], *, older_than: timedelta) -> Sequence[RowMapping]:
    """The instances to archive together with these: id, whether it `ended` long ago, the ids it is `joined` to."""
    parameters = {"seeds": list(ids), "older_than": older_than}
    return connection.exec_driver_sql(sql("archive_closure"), parameters).mappings().all()


def move(connection: Connection, ids: Collection[UUID], *, older_than: timedelta, keys_kept: timedelta) -> ArchiveMoved:
    """Move instances that belong together, with all their rows, in the caller's transaction.

    Args:
        connection: the caller's transaction.
        ids: complete groups: no instance outside may refer to them.
        older_than: how long ago each must have ended.
        keys_kept: how long request ids are kept; an instance with a younger request is not moved.
    """
    query = select(instances.c.id).where(instances.c.id.in_(ids)).order_by(instances.c.id)
    locked = connection.execute(query.with_for_update(skip_locked=True)).scalars().all()
    if len(locked) < len(ids):
        return ArchiveMoved("another process is working on it", 0, 0)
    # A statement of its own: its snapshot is newer than the locks.
    row = connection.exec_driver_sql(
        in_schema("SELECT held, instances, events FROM interlock.archive(%(ids)s, %(older_than)s, %(keys_kept)s)"),
        {"ids": list(ids), "older_than": older_than, "keys_kept": keys_kept},
    ).one()
    return ArchiveMoved(row[0], row[1] or 0, row[2] or 0)


def position(connection: Connection) -> UUID | None:
    """The id after which the sweep continues; None: from the beginning."""
    found: UUID | None = connection.execute(
        text(in_schema("SELECT after FROM interlock.archive_progress"))
    ).scalar_one()
    return found


def store_position(connection: Connection, after: UUID | None) -> None:
    """Store the id after which the sweep continues."""
    connection.execute(text(in_schema("UPDATE interlock.archive_progress SET after = :after")), {"after": after})


def page(
    connection: Connection, *, project: str | None = None, type_: str | None = None, limit: int = 50
) -> Sequence[RowMapping]:
    """The most recently archived instances, filtered by project and type if given."""
    query = select(archived_instances).order_by(archived_instances.c.archived_at.desc(), archived_instances.c.id.desc())
    query = query.where(archived_instances.c.workflow_type == type_) if type_ else query
    query = query.where(archived_instances.c.project == project) if project else query
    return connection.execute(query.limit(limit)).mappings().all()


def count(connection: Connection) -> int:
    """How many instances are archived."""
    return connection.execute(select(func.count()).select_from(archived_instances)).scalar_one()


def history(
    connection: Connection, instance_id: UUID, *, after_seq: int = 0, limit: int | None = None
) -> list[EventRow]:
    """An archived instance's events in order, those after `after_seq`, at most `limit`."""
    return of_instance(connection, instance_id, after_seq=after_seq, limit=limit, table=archived_transitions)


def linked(connection: Connection, instance_id: UUID) -> Sequence[RowMapping]:
    """(role, workflow_type, entity_id, current_state) of the instances linked to or from an archived instance."""
    return connection.exec_driver_sql(_LINKED, {"id": instance_id}).mappings().all()


def records_of(connection: Connection, instance_id: UUID) -> Sequence[RowMapping]:
    """(kind, key, body) of the rows that were archived with an instance."""
    query = select(records.c.kind, records.c.key, records.c.body).where(records.c.workflow_id == instance_id)
    return connection.execute(query.order_by(records.c.kind, records.c.key)).mappings().all()


def vacuum(connection: Connection) -> None:
    """Vacuum and analyse the tables that rows were deleted from; this blocks nobody.

    Args:
        connection: one without an open transaction.
    """
    alone = connection.execution_options(isolation_level="AUTOCOMMIT")
    for name in LEFT:
        alone.execute(text(f"VACUUM (ANALYZE) {SCHEMA}.{name}"))
