"""Queries for migrating instances to another version: the instances, their unfinished work, the event."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, func, select, text

from interlock.db.core import rounds
from interlock.db.core.requests import partition_of
from interlock.db.schema import in_schema
from interlock.db.statements import among
from interlock.db.tables.core import definition_states, definitions, effects, instances, requests

PAGE = 500
UNFINISHED = ("scheduled", "pending", "waiting")

# Since when an instance stands in its state: its last move, or its birth. A migration that kept the state is no move.
_AGE = in_schema("""
SELECT extract(epoch FROM clock_timestamp() - COALESCE(
           (SELECT t.created_at FROM interlock.workflow_transitions t
             WHERE t.workflow_id = i.id AND t.from_state <> t.to_state
             ORDER BY t.seq DESC LIMIT 1),
           i.created_at))
  FROM interlock.workflow_instances i WHERE i.id = %(id)s
""")
# What an instance is decided by, as `interlock.gather` reads it.
_CONTEXT = in_schema("""
SELECT CASE i.workflow_type WHEN 'circuit_breaker' THEN interlock.configured(i) ELSE i.context END
  FROM interlock.workflow_instances i WHERE i.id = %(id)s
""")
# The event of a migration, before the instance's row changes: the `append` trigger asks where the instance stands now.
_EVENT = in_schema("""
INSERT INTO interlock.workflow_transitions (id, workflow_id, seq, workflow_type, definition_version, from_state,
                                            to_state, trigger, triggered_by, severity, metadata)
VALUES (%(id)s, %(workflow_id)s, %(seq)s, %(workflow_type)s, %(definition_version)s, %(from_state)s, %(to_state)s,
        %(trigger)s, %(triggered_by)s, 'warning', %(metadata)s::jsonb)
""")
# The instance follows the event of its migration; PostgreSQL lets its version change for nothing else.
_INSTANCE = in_schema("""
UPDATE interlock.workflow_instances
   SET definition_version = %(definition_version)s, current_state = %(to_state)s, version = %(seq)s, updated_at = now()
 WHERE id = %(workflow_id)s AND version = %(seq)s - 1
""")


def form(connection: Connection, type_: str, version: str) -> dict[str, Any] | None:
    """A recorded definition; None if it is not recorded."""
    query = select(definitions.c.body).where(definitions.c.type == type_, definitions.c.version == version)
    body: dict[str, Any] | None = connection.execute(query).scalar()
    return body


def count_live(connection: Connection, type_: str, version: str) -> int:
    """The number of live instances under a version."""
    return connection.execute(select(func.count()).select_from(_live_ids(type_, version).subquery())).scalar_one()


def live_versions(connection: Connection) -> list[tuple[str, str, int]]:
    """(type, version, number) of the live instances."""
    columns = (instances.c.workflow_type, instances.c.definition_version)
    query = _only_live(select(*columns, func.count())).group_by(*columns).order_by(*columns)
    return [(type_, version, count) for type_, version, count in connection.execute(query)]


def pages(connection: Connection, type_: str, version: str, only: Sequence[UUID] | None = None) -> Iterator[list[UUID]]:
    """The live instances under a version (with `only`: those among them), each once, in pages of a few hundred."""
    query = _live_ids(type_, version).order_by(instances.c.id).limit(PAGE)
    if only is not None:
        query = query.where(among(instances.c.id, only))
    last: UUID | None = None
    while page := list(connection.execute(query.where(instances.c.id > last) if last else query).scalars()):
        yield page
        last = page[-1]


def _live_ids(type_: str, version: str) -> Any:
    return _only_live(select(instances.c.id)).where(
        instances.c.workflow_type == type_, instances.c.definition_version == version
    )


def _only_live(query: Any) -> Any:
    state = definition_states.c
    here = (
        (state.type == instances.c.workflow_type)
        & (state.version == instances.c.definition_version)
        & (state.state == instances.c.current_state)
    )
    return query.join(definition_states, here).where(~state.terminal)


def lock(connection: Connection, instance_id: UUID) -> RowMapping | None:
    """Lock an instance and its partition, as a round does; nobody else moves it before this transaction ends."""
    rounds.lock(connection, partition_of(instance_id))
    query = select(instances).where(instances.c.id == instance_id).with_for_update(key_share=True)
    return connection.execute(query).mappings().first()


def context(connection: Connection, instance_id: UUID) -> Mapping[str, Any]:
    """What an instance is decided by: its context, and a breaker's present configuration."""
    known: Mapping[str, Any] = connection.exec_driver_sql(_CONTEXT, {"id": instance_id}).scalar_one()
    return known


def unfinished(connection: Connection, instance_id: UUID) -> Sequence[RowMapping]:
    """The unfinished requests of an instance, oldest first."""
    query = select(requests).where(requests.c.workflow_id == instance_id, requests.c.status.in_(UNFINISHED))
    return connection.execute(query.order_by(requests.c.seq)).mappings().all()


def outcome_triggers(connection: Connection, instance_id: UUID) -> list[str]:
    """The triggers with which unfinished effects will report their outcome to the instance."""
    query = select(effects.c.done_trigger, effects.c.failed_trigger).where(
        effects.c.workflow_id == instance_id, effects.c.status.in_(("pending", "leased"))
    )
    return sorted({trigger for row in connection.execute(query) for trigger in row if trigger})


def age_seconds(connection: Connection, instance_id: UUID) -> float:
    """Seconds since an instance entered its state, which moves that led to the same one did not do again."""
    return float(connection.exec_driver_sql(_AGE, {"id": instance_id}).scalar_one())


def migrate(connection: Connection, event: dict[str, Any]) -> None:
    """Write the event of a migration, then update the instance's row; PostgreSQL checks both before this returns.

    Raises:
        DBAPIError: PostgreSQL refuses it.
    """
    connection.exec_driver_sql(_EVENT, event)
    connection.exec_driver_sql(_INSTANCE, event)


def check_now(connection: Connection) -> None:
    """Run PostgreSQL's deferred checks now instead of at the commit."""
    connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
