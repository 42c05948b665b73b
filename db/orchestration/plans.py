"""The submitted plans, the texts of their patches, and their runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping, insert, select
from sqlalchemy.dialects.postgresql import insert as insert_or_leave

from interlock.db.core.instances import newest
from interlock.db.core.portions import NEWEST, Portion
from interlock.db.statements import matching
from interlock.db.tables.core import instances
from interlock.db.tables.orchestration import commands, patches, plans, runs, tasks, workstreams


def store(connection: Connection, run_id: UUID, *, body: Mapping[str, Any], directory: str) -> None:
    """Store a run's plan, and the directory that its paths are relative to."""
    connection.execute(insert(plans).values(run_id=run_id, body=body, directory=directory))


def store_patches(connection: Connection, texts: Mapping[str, str], *, created_by: str) -> None:
    """Store patches (patch id -> text). One whose id is known has the same text and is left unchanged."""
    rows = [{"patch_id": each, "body": body, "created_by": created_by} for each, body in texts.items()]
    if rows:
        connection.execute(insert_or_leave(patches).on_conflict_do_nothing(), rows)


def of_run(connection: Connection, run_id: UUID) -> RowMapping | None:
    """A run's plan: `body`, `directory`; None if the run was created without one."""
    return connection.execute(select(plans).where(plans.c.run_id == run_id)).mappings().first()


def newest_runs(connection: Connection, portion: Portion = NEWEST, *, state: str | None = None) -> Sequence[RowMapping]:
    """The newest runs, in a state if given: `id`, `name`, `project`, `state`, `priority`, `plan`, start and end."""
    query = select(
        runs.c.run_id.label("id"),
        instances.c.entity_id.label("name"),
        instances.c.project,
        runs.c.state,
        instances.c.context["plan"].astext.label("plan"),
        runs.c.priority,
        runs.c.created_at,
        runs.c.started_at,
        runs.c.completed_at,
    )
    query = matching(newest(query, runs.c.run_id, portion), (runs.c.state, state))
    return connection.execute(query).mappings().all()


def workstreams_of(connection: Connection, run_id: UUID) -> Sequence[RowMapping]:
    """`id`, `name`, `state` and `carried_from` (or None) of a run's workstreams; not of one that was done again."""
    query = (
        select(
            workstreams.c.ws_id.label("id"),
            instances.c.context["name"].astext.label("name"),
            workstreams.c.state,
            instances.c.context["carried_from"].astext.label("carried_from"),
        )
        .join(instances, instances.c.id == workstreams.c.ws_id)
        .where(workstreams.c.run_id == run_id, ~workstreams.c.left_out)
    )
    return connection.execute(query).mappings().all()


def tasks_by_name(connection: Connection, workstream_ids: Iterable[UUID]) -> dict[str, UUID]:
    """The tasks of some workstreams, by their full names in the plan; of several, the newest that is completed."""
    query = (
        select(instances.c.context["name"].astext, tasks.c.task_id)
        .join(instances, instances.c.id == tasks.c.task_id)
        .where(tasks.c.workstream_id.in_(list(workstream_ids)))
        .order_by(tasks.c.state == "completed", tasks.c.task_id)
    )
    return {name: task_id for name, task_id in connection.execute(query)}


def tasks_of(connection: Connection, run_id: UUID) -> Sequence[RowMapping]:
    """`id`, `name` (in full) and `patch_id` (or None) of a run's tasks, oldest first."""
    context = instances.c.context
    query = (
        select(tasks.c.task_id.label("id"), context["name"].astext.label("name"), commands.c.patch_id)
        .join(instances, instances.c.id == tasks.c.task_id)
        .outerjoin(commands, commands.c.workflow_id == tasks.c.task_id)
        .join(workstreams, workstreams.c.ws_id == tasks.c.workstream_id)
        .where(workstreams.c.run_id == run_id)
        .order_by(tasks.c.task_id)
    )
    return connection.execute(query).mappings().all()


def task_named(connection: Connection, run_id: UUID, name: str) -> RowMapping | None:
    """`id`, `kind` and `state` of a run's task by its full name in the plan; None: it has none of that name."""
    query = (
        select(tasks.c.task_id.label("id"), tasks.c.kind, tasks.c.state)
        .join(instances, instances.c.id == tasks.c.task_id)
        .where(tasks.c.run_id == run_id, instances.c.context["name"].astext == name, ~tasks.c.left_out)
        .order_by(tasks.c.task_id.desc())
        .limit(1)
    )
    return connection.execute(query).mappings().first()
