"""Instances: create them, find them by name, read them."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from psycopg.errors import ForeignKeyViolation
from sqlalchemy import ColumnElement, Connection, RowMapping, Table, and_, func, or_, select, true, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql import Select

from interlock.db.connection import sql
from interlock.db.core.archive import archived_instances
from interlock.db.statements import Rows, among, returning
from interlock.db.tables.core import instances
from interlock.workflows.errors import AmbiguousInstance, Archived, BadInput, UnknownInstance
from interlock.workflows.input.names import UNKEPT
from interlock.workflows.output.suggestions import offered


def create(connection: Connection, births: Rows) -> set[UUID]:
    """Insert instances; the ids of those that are new (the others' entities exist already, and stay as they are).

    Raises:
        UnknownInstance: a context names something that does not exist; nothing is inserted.
        BadInput: PostgreSQL refuses what a context says, as a CHECK of its typed row.
    """
    try:
        return {row["id"] for row in returning(connection, "create", births)}
    except IntegrityError as refused:
        told = getattr(refused.orig, "diag", None)
        message = "; ".join(each for each in (told and told.message_primary, told and told.message_detail) if each)
        if isinstance(refused.orig, ForeignKeyViolation):
            raise UnknownInstance(f"{message}; create that first") from refused
        raise BadInput(message) from refused


def link(connection: Connection, wanted: Rows) -> None:
    """Link instances to those their context names.

    Raises:
        UnknownInstance: a target does not exist in the project; nothing is linked.
    """
    found: set[tuple[str, str, str | None]] = set()
    for row in returning(connection, "link", wanted):
        source, role = str(row["source_id"]), row["role"]
        found |= {(source, role, str(row["target_id"])), (source, role, None)}
    for each in wanted:
        target = str(each["target_id"]) if each["target_id"] else None
        if (str(each["source_id"]), each["role"], target) not in found:
            raise UnknownInstance(
                f"{each['type']} {each['target']!r} does not exist in project {each['project_id']}; create it first"
            )


def note_failure(connection: Connection, failures: Mapping[UUID, str]) -> None:
    """Record on each instance what went wrong (EVENT-12: `error`, `retry_count`); the next move clears it."""
    for instance_id, error in failures.items():
        connection.execute(
            update(instances)
            .where(instances.c.id == instance_id)
            .values(error=error, retry_count=instances.c.retry_count + 1, updated_at=func.now())
        )


def find(connection: Connection, ref: str, project_id: UUID | None = None) -> RowMapping:
    """The instance a REF names: `ENTITY_ID`, `TYPE/ENTITY_ID` or a UUID.

    The UUID of an instance means that one, whatever others are called.

    Raises:
        UnknownInstance: nothing answers to it.
        AmbiguousInstance: several do; the message lists them.
    """
    if UNKEPT.search(ref):  # nobody's name
        raise UnknownInstance(f"there is no instance {ref!r}.")
    found, id_ = _called(connection, instances, ref, project_id), as_uuid(ref)
    other = not found or (id_ and found[0]["id"] != id_)
    gone = _called(connection, archived_instances, ref, project_id) if other else ()
    if gone and (not found or gone[0]["id"] == id_):
        raise Archived(
            f"{gone[0]['workflow_type']}/{gone[0]['entity_id']} ended in {gone[0]['current_state']} and was archived "
            f"on {gone[0]['archived_at']:%Y-%m-%d}: it accepts no trigger. {offered('history', ref)} shows its history."
        )
    if not found:
        raise UnknownInstance(f"there is no instance {ref!r}. `interlock list` shows those that exist.")
    if len(found) > 1:
        names = ", ".join(f"{row['workflow_type']}/{row['entity_id']} ({row['id']})" for row in found)
        raise AmbiguousInstance(f"{ref!r} names several instances: {names}. Use TYPE/ENTITY_ID or the UUID.")
    return found[0]


def find_kept(connection: Connection, ref: str, project_id: UUID | None = None) -> Mapping[Any, Any]:
    """The instance a REF names, be it in the archive; `archived_at` of it, None where it is not. Raises like `find`."""
    try:
        return dict(find(connection, ref, project_id)) | {"archived_at": None}
    except Archived:
        return _called(connection, archived_instances, ref, project_id)[0]


def _called(connection: Connection, table: Table, ref: str, project_id: UUID | None) -> Sequence[RowMapping]:
    """Up to six instances of a table that answer to a REF; that of a UUID alone, whatever others are called."""
    in_project: ColumnElement[bool] = table.c.project_id == project_id if project_id else true()
    query = select(table).where(_named(table, ref), in_project).limit(6)
    if id_ := as_uuid(ref):
        query = query.order_by((table.c.id == id_).desc())
    found = connection.execute(query).mappings().all()
    return found[:1] if found and found[0]["id"] == id_ else found


def as_uuid(ref: str) -> UUID | None:
    """The UUID whose text a REF is, if it is one's."""
    with suppress(ValueError):
        return UUID(ref)
    return None


def find_many(connection: Connection, refs: Iterable[str | UUID]) -> dict[str | UUID, RowMapping]:
    """The instances that REFs name; the UUIDs among them in one statement. Raises like `find`."""
    refs = list(refs)
    ids = [ref for ref in refs if isinstance(ref, UUID)]
    rows = connection.execute(select(instances).where(among(instances.c.id, ids))).mappings().all() if ids else []
    found: dict[str | UUID, RowMapping] = {row["id"]: row for row in rows}
    return {ref: found.get(ref) or find(connection, str(ref)) for ref in refs}


def _named(table: Table, ref: str) -> ColumnElement[bool]:
    names = [table.c.entity_id == ref]
    if id_ := as_uuid(ref):
        names.append(table.c.id == id_)
    type_, slash, entity_id = ref.partition("/")
    if slash:
        names.append(and_(table.c.workflow_type == type_, table.c.entity_id == entity_id))
    return or_(*names)


def ids_of(connection: Connection, type_: str, named: Iterable[tuple[UUID, str]]) -> dict[tuple[UUID, str], UUID]:
    """(project, entity id) -> id, of the instances of a type."""
    wanted = set(named)
    query = select(instances.c.project_id, instances.c.entity_id, instances.c.id).where(
        instances.c.workflow_type == type_,
        among(instances.c.entity_id, {entity_id for _, entity_id in wanted}),
    )
    return {(row[0], row[1]): row[2] for row in connection.execute(query) if (row[0], row[1]) in wanted}


def page(
    connection: Connection, *, type_: str | None = None, states: Iterable[str] = (), limit: int = 50
) -> Sequence[RowMapping]:
    """The newest instances, of one type if given, in one of these states if there are any."""
    query: Select[Any] = select(instances).order_by(instances.c.id.desc()).limit(limit)
    if type_:
        query = query.where(instances.c.workflow_type == type_)
    if wanted := list(states):
        query = query.where(instances.c.current_state.in_(wanted))
    return connection.execute(query).mappings().all()


def linked(connection: Connection, ids: Sequence[UUID]) -> Sequence[RowMapping]:
    """(workflow_id, role, id, workflow_type, entity_id, current_state) of what is linked to the instances given."""
    return connection.exec_driver_sql(sql("facts"), {"ids": list(ids)}).mappings().all() if ids else []


def count_by_state(connection: Connection, ids: Sequence[UUID] | None = None) -> dict[tuple[str, str], int]:
    """(type, state) -> how many instances stand there."""
    query = select(instances.c.workflow_type, instances.c.current_state, func.count()).group_by(
        instances.c.workflow_type, instances.c.current_state
    )
    if ids is not None:
        query = query.where(among(instances.c.id, ids))
    return {(type_, state): count for type_, state, count in connection.execute(query)}
