"""Plans as they were submitted, the texts of their patches, and the runs that carry them out."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, Select, insert, or_, select
from sqlalchemy.dialects.postgresql import insert as insert_or_leave

from interlock.db.core.instances import as_uuid
from interlock.db.tables import commands, patches, plans, runs, tasks, workstreams
from interlock.db.tables.core import instances
from interlock.workflows.errors import AmbiguousInstance, UnknownInstance
from interlock.workflows.input.names import UNKEPT


def keep(connection: Connection, run_id: UUID, *, body: Mapping[str, Any], directory: str) -> None:
    """Keep a run's plan, and the directory that its paths are relative to."""
    connection.execute(insert(plans).values(run_id=run_id, body=body, directory=directory))


def keep_patches(connection: Connection, texts: Mapping[str, str], *, created_by: str) -> None:
    """Keep patches, patch id -> text; those known by their id have the same text, and stay."""
    rows = [{"patch_id": each, "body": body, "created_by": created_by} for each, body in texts.items()]
    if rows:
        connection.execute(insert_or_leave(patches).on_conflict_do_nothing(), rows)


def of_run(connection: Connection, run_id: UUID) -> RowMapping | None:
    """The plan that a run carries out: `body`, `directory`; None of a run that was created without one."""
    return connection.execute(select(plans).where(plans.c.run_id == run_id)).mappings().first()


def find_run(connection: Connection, ref: str) -> RowMapping:
    """The instance of the run that a REF names: its name, `run/NAME` or its UUID, whatever others are called.

    Raises:
        UnknownInstance: no run answers to it.
        AmbiguousInstance: runs of several projects do; the message lists them.
    """
    found = [] if UNKEPT.search(ref) else connection.execute(_named(ref)).mappings().all()
    if not found:
        raise UnknownInstance(f"there is no run {ref!r}. `interlock runs` lists those that exist.")
    if len(found) > 1 and found[0]["id"] != as_uuid(ref):
        ids = ", ".join(str(row["id"]) for row in found)
        raise AmbiguousInstance(f"{ref!r} names runs of several projects: {ids}. Use the UUID.")
    return found[0]


def _named(ref: str) -> Select[Any]:
    query = select(instances).where(instances.c.workflow_type == "run").limit(6)
    name = instances.c.entity_id == ref.removeprefix("run/")
    if (id_ := as_uuid(ref)) is None:
        return query.where(name)
    return query.where(or_(name, instances.c.id == id_)).order_by((instances.c.id == id_).desc())


def newest_runs(connection: Connection, *, limit: int) -> Sequence[RowMapping]:
    """The newest runs first: `id`, `name`, `state`, `priority`, `plan`, and when they began and ended."""
    query = (
        select(
            runs.c.run_id.label("id"),
            instances.c.entity_id.label("name"),
            runs.c.state,
            instances.c.context["plan"].astext.label("plan"),
            runs.c.priority,
            runs.c.created_at,
            runs.c.started_at,
            runs.c.completed_at,
        )
        .join(instances, instances.c.id == runs.c.run_id)
        .order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
        .limit(limit)
    )
    return connection.execute(query).mappings().all()


def workstreams_of(connection: Connection, run_id: UUID) -> Sequence[RowMapping]:
    """`id`, `name`, `state` and `carried_from` (or None) of a run's workstreams."""
    query = (
        select(
            workstreams.c.ws_id.label("id"),
            instances.c.context["name"].astext.label("name"),
            workstreams.c.state,
            instances.c.context["carried_from"].astext.label("carried_from"),
        )
        .join(instances, instances.c.id == workstreams.c.ws_id)
        .where(workstreams.c.run_id == run_id)
    )
    return connection.execute(query).mappings().all()


def tasks_of(connection: Connection, run_id: UUID) -> Sequence[RowMapping]:
    """`id`, `name` (in full) and `patch_id` (or None) of a run's tasks."""
    said = instances.c.context
    query = (
        select(tasks.c.task_id.label("id"), said["name"].astext.label("name"), commands.c.patch_id)
        .join(instances, instances.c.id == tasks.c.task_id)
        .outerjoin(commands, commands.c.workflow_id == tasks.c.task_id)
        .join(workstreams, workstreams.c.ws_id == tasks.c.workstream_id)
        .where(workstreams.c.run_id == run_id)
    )
    return connection.execute(query).mappings().all()
