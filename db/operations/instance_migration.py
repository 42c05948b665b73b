"""Instances move to another version of their definition: which are concerned, what is under way for them, the event."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, func, select, text

from interlock.db.connection import sql
from interlock.db.core import rounds
from interlock.db.core.requests import partition_of
from interlock.db.statements import among
from interlock.db.tables.core import definition_states, definitions, effects, instances, requests

PAGE = 500
UNFINISHED = ("scheduled", "pending", "waiting")


def form(connection: Connection, type_: str, version: str) -> dict[str, Any] | None:
    """A definition as recorded; None where it is not."""
    query = select(definitions.c.body).where(definitions.c.type == type_, definitions.c.version == version)
    body: dict[str, Any] | None = connection.execute(query).scalar()
    return body


def count_live(connection: Connection, type_: str, version: str) -> int:
    """How many instances stand under a version and have not ended."""
    return connection.execute(select(func.count()).select_from(_live(type_, version).subquery())).scalar_one()


def live_versions(connection: Connection) -> list[tuple[str, str, int]]:
    """(type, version, how many) of the instances that have not ended."""
    columns = (instances.c.workflow_type, instances.c.definition_version)
    query = _living(select(*columns, func.count())).group_by(*columns).order_by(*columns)
    return [(type_, version, count) for type_, version, count in connection.execute(query)]


def pages(connection: Connection, type_: str, version: str, only: Sequence[UUID] | None = None) -> Iterator[list[UUID]]:
    """The instances that `count_live` counts, or those among `only`, a few hundred at a time and each once."""
    query = _live(type_, version).order_by(instances.c.id).limit(PAGE)
    if only is not None:
        query = query.where(among(instances.c.id, only))
    last: UUID | None = None
    while page := list(connection.execute(query.where(instances.c.id > last) if last else query).scalars()):
        yield page
        last = page[-1]


def _live(type_: str, version: str) -> Any:
    return _living(select(instances.c.id)).where(
        instances.c.workflow_type == type_, instances.c.definition_version == version
    )


def _living(query: Any) -> Any:
    state = definition_states.c
    here = (
        (state.type == instances.c.workflow_type)
        & (state.version == instances.c.definition_version)
        & (state.state == instances.c.current_state)
    )
    return query.join(definition_states, here).where(~state.terminal)


def lock(connection: Connection, instance_id: UUID) -> RowMapping | None:
    """An instance with its partition locked, as for a round: nobody else moves it before this transaction ends."""
    rounds.lock(connection, partition_of(instance_id))
    query = select(instances).where(instances.c.id == instance_id).with_for_update(key_share=True)
    return connection.execute(query).mappings().first()


def unfinished(connection: Connection, instance_id: UUID) -> Sequence[RowMapping]:
    """The requests of an instance that are not finished, oldest first."""
    query = select(requests).where(requests.c.workflow_id == instance_id, requests.c.status.in_(UNFINISHED))
    return connection.execute(query.order_by(requests.c.seq)).mappings().all()


def reports(connection: Connection, instance_id: UUID) -> list[str]:
    """The triggers by which effects that are under way will tell the instance their outcome."""
    query = select(effects.c.done_trigger, effects.c.failed_trigger).where(
        effects.c.workflow_id == instance_id, effects.c.status.in_(("pending", "leased"))
    )
    return sorted({trigger for row in connection.execute(query) for trigger in row if trigger})


def age_seconds(connection: Connection, instance_id: UUID) -> float:
    """How long an instance has stood in its state; a migration that left it there does not count as entering."""
    return float(connection.exec_driver_sql(sql("state_age"), {"id": instance_id}).scalar_one())


def migrate(connection: Connection, event: dict[str, Any]) -> None:
    """Write the event of a migration, then let the instance's row follow; all of it is checked before this returns.

    Raises:
        DBAPIError: PostgreSQL refuses it.
    """
    connection.exec_driver_sql(sql("migrate_event"), event)
    connection.exec_driver_sql(sql("migrate_instance"), event)


def check_now(connection: Connection) -> None:
    """Have PostgreSQL check at once what it would check at the commit."""
    connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
