"""Instances: create them, find them by name, read them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from shlex import quote
from typing import Any, TypedDict, cast
from uuid import UUID

from psycopg.errors import ForeignKeyViolation
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    RowMapping,
    Table,
    and_,
    func,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql import Select

from interlock.db import fast_path
from interlock.db.core.archive import archived_instances
from interlock.db.core.portions import NEWEST, Portion
from interlock.db.fast_path import Row
from interlock.db.schema import in_schema
from interlock.db.statements import Rows, among, matching, returning
from interlock.db.tables.core import instances
from interlock.workflows.errors import AmbiguousInstance, Archived, Attempt, BadInput, NotYours, UnknownInstance
from interlock.workflows.input.names import UNKEPT, point
from interlock.workflows.output.suggestions import offered

_EITHER = (instances, archived_instances)
NAMED = instances.c.workflow_type.concat("/").concat(instances.c.entity_id)  # TYPE/NAME, for people
_CREATE = in_schema("SELECT id FROM interlock.create_all(%(rows)s::json) AS id")
_LINK = in_schema("SELECT * FROM interlock.link_all(%(rows)s::json)")
_PROJECTS = in_schema("""
SELECT id, project FROM interlock.workflow_instances WHERE id = ANY(%(ids)s::uuid[])
 UNION ALL SELECT id, project FROM interlock.archived_instances WHERE id = ANY(%(ids)s::uuid[])
""")
# The instances linked to some, in either direction, with the state each stands in now. The array is a subquery's, or
# PostgreSQL would plan this anew for each number of instances, which takes longer than it runs.
_LINKED = in_schema("""
SELECT l.one AS workflow_id, l.role, i.id, i.workflow_type, i.entity_id, i.current_state, i.version,
       i.definition_version, i.project
  FROM (SELECT source_id AS one, role, target_id AS other FROM interlock.workflow_links
        UNION ALL
        SELECT target_id, inverse, source_id FROM interlock.workflow_links) l
  JOIN interlock.workflow_instances i ON i.id = l.other
 WHERE l.one = ANY (ARRAY(SELECT unnest(%(ids)s::uuid[])))
   AND (%(roles)s::text[] IS NULL OR l.role = ANY (%(roles)s::text[]))
 ORDER BY i.created_at, i.id
""")


# What an instance is linked to in a role becomes another, or none; `link_changes` records both. PostgreSQL refuses it
# at commit unless the instance's event in this transaction says so.
_RELINK = in_schema("""
WITH gone AS (
    DELETE FROM interlock.workflow_links WHERE source_id = %(source_id)s AND role = %(role)s
)
INSERT INTO interlock.workflow_links (source_id, role, inverse, target_id)
SELECT %(source_id)s, %(role)s, %(inverse)s, %(target_id)s::uuid WHERE %(target_id)s::uuid IS NOT NULL
""")


class InstanceRow(TypedDict):
    """An instance.

    A row of `workflow_instances`.
    """

    id: UUID
    workflow_type: str
    definition_version: str
    current_state: str
    version: int
    entity_id: str
    project: str
    context: dict[str, Any]
    error: str | None
    retry_count: int
    created_by: str
    created_at: datetime
    updated_at: datetime
    born_version: str
    context_sha256: bytes
    bodies: dict[str, str] | None
    born_proof: str | None


class EveryInstanceRow(InstanceRow):
    """An instance, live or archived."""

    archived_at: datetime | None


def create(connection: Connection, births: Rows) -> set[UUID]:
    """Insert instances; returns the ids of the new ones. Entities that exist already are left unchanged.

    Raises:
        UnknownInstance: a context names something that does not exist; nothing is inserted.
        BadInput: a context breaks a CHECK of its typed row.
        NotYours: the login may not create one of them; nothing is inserted.
    """
    with _refusals():
        try:
            return {row["id"] for row in returning(connection, _CREATE, births)}
        except NotYours as refused:
            refused.attempt = Attempt("create_all", births)
            raise


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except IntegrityError as refused:
        diagnostic = getattr(refused.orig, "diag", None)
        message = "; ".join(
            each
            for each in (diagnostic and diagnostic.message_primary, diagnostic and diagnostic.message_detail)
            if each
        )
        if isinstance(refused.orig, ForeignKeyViolation):
            raise UnknownInstance(f"{message}; create that first") from refused
        raise BadInput(message) from refused


def link(connection: Connection, rows: Rows) -> None:
    """Link instances to the instances that their contexts name.

    Raises:
        UnknownInstance: a target does not exist in the project; nothing is linked.
        BadInput: a job names a worker that is not its own (JOB-1), or an open link an instance that has ended.
    """
    found: set[tuple[str, str, str | None]] = set()
    with _refusals():
        linked_rows = returning(connection, _LINK, rows)
    for row in linked_rows:
        source, role = str(row["source_id"]), row["role"]
        found |= {(source, role, str(row["target_id"])), (source, role, None)}
    for each in rows:
        target = str(each["target_id"]) if each["target_id"] else None
        if (str(each["source_id"]), each["role"], target) not in found:
            raise UnknownInstance(
                f"{each['type']} {each['target']!r} does not exist in project {each['project']}; create it first"
            )


def hold(connection: Connection, type_: str, project: str, ref: str) -> RowMapping | None:
    """Find an instance of a type by UUID, or by entity id in a project, and keep it from moving until this commits.

    Returns:
        Its `id`, `entity_id` and `current_state` once nobody moves it any more; None: there is none.
    """
    id_ = as_uuid(ref)
    named = and_(instances.c.project == project, instances.c.entity_id == ref) if id_ is None else instances.c.id == id_
    query = select(instances.c.id, instances.c.entity_id, instances.c.current_state)
    query = query.where(instances.c.workflow_type == type_, named).with_for_update(read=True)
    return connection.execute(query).mappings().one_or_none()


def relink(connection: Connection, change: Mapping[str, Any]) -> None:
    """Link an instance in a role to another instance instead, or to none.

    Args:
        connection: a round's transaction, in which the move that changes the link is written before.
        change: `source_id`, `role`, `inverse`, and `target_id`, or None.
    """
    connection.exec_driver_sql(_RELINK, dict(change))


def note_failure(connection: Connection, failures: Mapping[UUID, str]) -> None:
    """Record on each instance what went wrong (EVENT-12: `error`, `retry_count`); the next move clears it."""
    for instance_id, error in failures.items():
        connection.execute(
            update(instances)
            .where(instances.c.id == instance_id)
            .values(error=error, retry_count=instances.c.retry_count + 1, updated_at=func.now())
        )


def find(connection: Connection, ref: str | UUID, project: str, *types: str) -> InstanceRow:
    """Find an instance by a REF: an entity id or `TYPE/ENTITY_ID` in the project, or the UUID of any instance.

    Args:
        connection: the caller's transaction.
        ref: the REF; a UUID always means the instance with that UUID.
        project: the project in which a name is looked up.
        types: only instances of these types; none given: of all types.

    Raises:
        UnknownInstance: no instance has that name; the message lists other projects that have one.
        AmbiguousInstance: several have it; the message lists them.
        Archived: it has been archived.
    """
    name = str(ref)
    if unkept := UNKEPT.search(name):  # PostgreSQL would fail to compare it
        raise UnknownInstance(f"there is no {_kind(types)} {name!r}: no name contains {point(unkept[0])}. Remove it")
    matches, id_ = _called(connection, instances, name, project, types), as_uuid(name)
    other = not matches or (id_ and matches[0]["id"] != id_)
    archived = _called(connection, archived_instances, name, project, types) if other else ()
    if archived and (not matches or archived[0]["id"] == id_):
        raise Archived(
            f"{archived[0]['workflow_type']}/{archived[0]['entity_id']} ended in {archived[0]['current_state']} and "
            f"was archived on {archived[0]['archived_at']:%Y-%m-%d}: it accepts no trigger. "
            f"{offered('history', archived[0]['id'])} shows its history."
        )
    if not matches:
        raise UnknownInstance(_unknown(connection, name, project, types))
    if len(matches) > 1:
        names = ", ".join(f"{row['workflow_type']}/{row['entity_id']} ({row['id']})" for row in matches)
        raise AmbiguousInstance(f"{name!r} names several instances: {names}. Use TYPE/ENTITY_ID or the UUID.")
    return cast(InstanceRow, dict(matches[0]))


def beginning(connection: Connection, prefix: str, *, project: str, types: Collection[str]) -> Sequence[RowMapping]:
    """Instances whose name begins with `prefix`, newest first: workflow_type, entity_id, current_state.

    At most 50, and of the newest 10,000 of the installation: it must answer while somebody types.

    Args:
        connection: any.
        prefix: how their names begin.
        project: theirs.
        types: of these only; empty: of any.
    """
    newest = select(instances).order_by(instances.c.id.desc()).limit(10_000).subquery()
    query = (
        select(newest.c.workflow_type, newest.c.entity_id, newest.c.current_state)
        .where(newest.c.project == project, newest.c.entity_id.startswith(prefix, autoescape=True))
        .order_by(newest.c.id.desc())
        .limit(50)
    )
    query = query.where(newest.c.workflow_type.in_(types)) if types else query
    return connection.execute(query).mappings().all()


def name_of(connection: Connection, instance_id: UUID) -> str:
    """TYPE/NAME of an instance, for people; its id if it is none, or archived."""
    return connection.execute(select(NAMED).where(instances.c.id == instance_id)).scalar() or str(instance_id)


def find_with_archived(connection: Connection, ref: str | UUID, project: str) -> EveryInstanceRow:
    """Find an instance by a REF, live or archived (`archived_at`; None if it is live). Raises like `find`."""
    try:
        return {**find(connection, ref, project), "archived_at": None}
    except Archived:
        return cast(EveryInstanceRow, dict(_called(connection, archived_instances, str(ref), project, ())[0]))


def by_id(connection: Connection, id_: UUID) -> InstanceRow:
    """The instance with this UUID. Raises `UnknownInstance` if there is none."""
    found = connection.execute(select(instances).where(instances.c.id == id_)).mappings().first()
    if found is None:
        raise UnknownInstance(f"no instance has the id {id_}")
    return cast(InstanceRow, dict(found))


def projects_of(statements: Engine, ids: Collection[UUID]) -> dict[UUID, str]:
    """The projects of the instances with these UUIDs, live or archived; unknown ones are left out.

    Args:
        statements: the engine for single statements.
        ids: of instances.
    """
    return {row["id"]: row["project"] for row in fast_path.all_rows(statements, _PROJECTS, {"ids": list(ids)})}


def by_ids(connection: Connection, ids: Collection[UUID]) -> dict[UUID, InstanceRow]:
    """The instances with these UUIDs, in the given order; missing ones are left out."""
    rows = connection.execute(select(instances).where(among(instances.c.id, ids))).mappings() if ids else ()
    found = {row["id"]: cast(InstanceRow, dict(row)) for row in rows}
    return {id_: found[id_] for id_ in ids if id_ in found}


def find_many(connection: Connection, refs: Iterable[str | UUID], project: str) -> dict[str | UUID, InstanceRow]:
    """Find instances by REFs; all UUIDs among them take one statement. Raises like `find`."""
    refs = list(refs)
    found = by_ids(connection, [ref for ref in refs if isinstance(ref, UUID)])
    return {ref: (isinstance(ref, UUID) and found.get(ref)) or find(connection, ref, project) for ref in refs}


def _kind(types: Sequence[str]) -> str:
    return " or ".join(types) or "instance"


def _unknown(connection: Connection, ref: str, project: str, types: Sequence[str]) -> str:
    """The error for a REF that was not found: it is of another type, in other projects, or nowhere."""
    type_ = types[0] if len(types) == 1 else None
    if id_ := as_uuid(ref):
        known = by_ids(connection, [id_])
        what = f"{ref!r} is not a {_kind(types)} but a {known[id_]['workflow_type']}" if known else None
        return f"{what or f'there is no {_kind(types)} {ref!r}'}. {offered('list', type=type_)} shows those that exist."
    unknown = f"there is no {_kind(types)} {ref!r} in project {quote(project)}."
    query = select(instances.c.project).where(_named(instances, ref, types)).distinct().order_by("project").limit(7)
    if elsewhere := [quote(each) for each in connection.execute(query).scalars()]:
        others = ", ".join(elsewhere[:6]) + " and others" * (len(elsewhere) > 6)
        return f"{unknown} These have one: {others}; name one with --project or Client(project=…)."
    before, _, after = ref.partition("/")
    if as_uuid(after):
        return f"{unknown} A UUID needs no type: leave {quote(before)}/ out."
    return f"{unknown} {offered('list', type=type_, project=project)} shows those that exist."


def _called(connection: Connection, table: Table, ref: str, project: str, types: Sequence[str]) -> Sequence[RowMapping]:
    """Up to six instances of a table that a REF names; for a UUID, only the instance with that UUID."""
    answers = and_(table.c.project == project, _named(table, ref, types))
    id_ = as_uuid(ref)
    if id_ is None:
        return connection.execute(select(table).where(answers).limit(6)).mappings().all()
    of_type = table.c.workflow_type.in_(types) if types else true()
    query = select(table).where(or_(answers, and_(table.c.id == id_, of_type))).limit(6)
    found = connection.execute(query.order_by((table.c.id == id_).desc())).mappings().all()
    return found[:1] if found and found[0]["id"] == id_ else found


def as_uuid(ref: str) -> UUID | None:
    """The UUID that a REF spells; None if it is not a UUID."""
    with suppress(ValueError):
        return UUID(ref)
    return None


def _named(table: Table, ref: str, types: Sequence[str]) -> ColumnElement[bool]:
    """The condition that an instance is named ENTITY_ID or TYPE/ENTITY_ID."""
    of_type = table.c.workflow_type.in_(types) if types else true()
    names = and_(table.c.entity_id == ref, of_type)
    type_, slash, entity_id = ref.partition("/")
    if slash and (not types or type_ in types):
        names = or_(names, and_(table.c.workflow_type == type_, table.c.entity_id == entity_id))
    return names


def page(
    connection: Connection,
    portion: Portion = NEWEST,
    *,
    type_: str | None = None,
    name: str | None = None,
    states: Iterable[str] = (),
) -> list[InstanceRow]:
    """The newest instances: of this type, with this entity id, in one of these states, where these are given."""
    query = matching(select(instances), (instances.c.workflow_type, type_), (instances.c.entity_id, name))
    if wanted := list(states):
        query = query.where(instances.c.current_state.in_(wanted))
    return of_portion(connection, query, portion)


def of_portion(connection: Connection, query: Select[Any], portion: Portion) -> list[InstanceRow]:
    """Of a query for instances, a portion of the newest."""
    if portion.projects is not None:
        query = query.where(instances.c.project.in_(portion.projects))
    if portion.before is not None:
        query = query.where(instances.c.id < portion.before)
    found = connection.execute(query.order_by(instances.c.id.desc()).limit(portion.limit)).mappings()
    return [cast(InstanceRow, dict(row)) for row in found]


def newest(query: Select[Any], key: Column[UUID], portion: Portion) -> Select[Any]:
    """Of a query for rows of a typed table, whose `key` is their instance: a portion of the newest."""
    age = tuple_(key.table.c.created_at, key)
    query = query.join(instances, instances.c.id == key).order_by(key.table.c.created_at.desc(), key.desc())
    if portion.projects is not None:
        query = query.where(instances.c.project.in_(portion.projects))
    if portion.before is not None:
        query = query.where(age < select(key.table.c.created_at, key).where(key == portion.before).scalar_subquery())
    return query.limit(portion.limit)


def linked(connection: Connection, ids: Sequence[UUID], roles: Collection[str] | None = None) -> list[Row]:
    """What is linked to the given instances: workflow_id (of one of them), role, id, workflow_type, definition_version,
    entity_id, current_state, version, project.

    Args:
        connection: any.
        ids: of the given instances.
        roles: only what is linked in one of these; None: in any.
    """
    given = {"ids": list(ids), "roles": None if roles is None else sorted(roles)}
    return fast_path.rows(connection, _LINKED, given) if ids else []


def with_names(table: Table, project: str | None) -> Select[Any]:
    """The rows of a table with a `workflow_id`, of one project or all, each with its instance's name and project."""
    named = (instances.c.project, instances.c.workflow_type, instances.c.entity_id)
    query = select(table, *named).join(instances, instances.c.id == table.c.workflow_id)
    return matching(query, (instances.c.project, project))
