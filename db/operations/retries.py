"""What `interlock run retry` reads of workstreams that are done again in their run, and what it changes beside states.

The caller must hold the locks of the run and of every partition, so that nobody else moves or counts.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Literal, TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection, select, update

from interlock.db.fast_path import rows
from interlock.db.orchestration import scheduling
from interlock.db.schema import in_schema
from interlock.db.statements import first, queries
from interlock.db.tables.core import instances
from interlock.db.tables.orchestration import tasks, workstreams
from interlock.workflows.scheduling.counts import RUN_COUNTS

sql = queries(__file__)

Links = dict[UUID, dict[str, list[UUID]]]  # instance -> role -> what it is linked to

# What these are linked to.
_LINKS = in_schema("""
SELECT source_id, role, target_id FROM interlock.workflow_links
 WHERE source_id = ANY(%(ids)s) AND role IN ('depends_on', 'gates', 'blocked_by_gates')
 ORDER BY source_id, target_id
""")

_JUDGES = in_schema("""
SELECT g.id, COALESCE(g.context->>'name', g.entity_id) AS name,
       ARRAY(SELECT target_id FROM interlock.workflow_links WHERE source_id = g.id AND role = 'depends_on') AS needs
  FROM interlock.workflow_instances g
 WHERE g.id IN (SELECT target_id FROM interlock.workflow_links WHERE source_id = %(task)s AND role = 'gates'
                UNION
                SELECT unnest(interlock.uuids(context->'gates')) FROM interlock.workflow_instances WHERE id = %(task)s)
 ORDER BY g.id
""")
_JUDGES_OF = in_schema("""
SELECT g.entity_id
  FROM interlock.tasks t
  JOIN interlock.workflow_links l ON l.source_id IN (t.task_id, t.workstream_id) AND l.role = 'gates'
  JOIN interlock.workflow_instances g ON g.id = l.target_id AND g.context->>'moment' IS DISTINCT FROM 'start'
 WHERE t.task_id = %(task)s
 ORDER BY l.source_id = t.workstream_id, g.entity_id
""")


class LackedWorkstream(TypedDict):
    """A workstream that will never be completed."""

    id: str
    name: str
    state: str


class RetriedWorkstream(TypedDict):
    """A workstream with its run, what was made in its place, and what it depends on and will never have (`lacks`)."""

    ws_id: UUID
    run_id: UUID
    state: str
    left_out: bool
    run_state: str
    run: str
    retried_by: str | None
    lacks: LackedWorkstream | None


class WorkstreamPart(TypedDict):
    """A gate or task; of gates `was`: itself and all whose place it took, and `reruns`, as the plan says."""

    kind: Literal["test_gate", "task"]
    id: UUID
    was: list[UUID]
    reruns: int


def workstream(connection: Connection, workstream_id: UUID) -> RetriedWorkstream | None:
    """A workstream as whoever wants it done again has to see it; None for versions 0.x."""
    return cast(RetriedWorkstream | None, first(connection, sql("workstream"), {"id": workstream_id}))


def given_up(connection: Connection, workstream_id: UUID) -> list[UUID]:
    """The workstream, and those that were cancelled or skipped only because of it."""
    found = connection.exec_driver_sql(sql("given_up"), {"ids": [workstream_id]}).all()
    lacks = {row.id: set(row.lacks) for row in found}
    while hopeless := {each for each in lacks if each != workstream_id and lacks[each] - lacks.keys()}:
        lacks = {each: others for each, others in lacks.items() if each not in hopeless}
    return sorted(lacks)


def parts(connection: Connection, workstream_ids: Collection[UUID]) -> list[WorkstreamPart]:
    """The present gates and tasks of workstreams, gates first."""
    return cast(list[WorkstreamPart], rows(connection, sql("parts"), {"ids": list(workstream_ids)}))


def links_of(connection: Connection, ids: Collection[UUID]) -> Links:
    """What instances are linked to, in the roles `depends_on`, `gates` and `blocked_by_gates`."""
    found: Links = defaultdict(lambda: defaultdict(list))
    for row in connection.exec_driver_sql(_LINKS, {"ids": list(ids)}):
        found[row.source_id][row.role].append(row.target_id)
    return found


def judges(connection: Connection, task_id: UUID) -> dict[UUID, list[UUID]]:
    """The gates that judge a task, or did at its birth, each with those of them that it needs; of reruns the newest."""
    found = connection.exec_driver_sql(_JUDGES, {"task": task_id}).all()
    newest = {row.name: row.id for row in found}
    place = {row.id: newest[row.name] for row in found}
    return {row.id: [place[each] for each in row.needs if each in place] for row in found if row.id == newest[row.name]}


def judges_of(connection: Connection, task_id: UUID) -> list[str]:
    """The names of the gates that judge a task, and of those that judge all of its workstream."""
    return list(connection.exec_driver_sql(_JUDGES_OF, {"task": task_id}).scalars())


def taken(connection: Connection, project: str, kind: str, names: Collection[str]) -> set[str]:
    """Those of these names that the project has already."""
    query = select(instances.c.entity_id).where(
        instances.c.project == project, instances.c.workflow_type == kind, instances.c.entity_id.in_(names)
    )
    return set(connection.execute(query).scalars())


def replace(connection: Connection, run_id: UUID, made: Mapping[UUID, UUID], workstream_ids: Collection[UUID]) -> None:
    """Put new instances in the place of old ones: whoever waits for an old one waits for the new one.

    The old workstreams and their tasks no longer count in their run.

    Args:
        connection: the override's transaction; the new instances exist.
        run_id: the run.
        made: old workstream, task or gate -> the one in its place.
        workstream_ids: the old workstreams.
    """
    connection.exec_driver_sql(sql("relink"), {"olds": list(made), "news": list(made.values())})
    gone = workstreams.c.ws_id.in_(workstream_ids)
    states = connection.execute(update(workstreams).where(gone).values(left_out=True).returning(workstreams.c.state))
    change = dict.fromkeys(RUN_COUNTS, 0) | {state: -count for state, count in Counter(states.scalars()).items()}
    scheduling.count_workstreams(connection, [{"id": run_id, **change}])
    connection.execute(update(tasks).where(tasks.c.workstream_id.in_(workstream_ids)).values(left_out=True))
    connection.exec_driver_sql(sql("recount_dependencies"), {"run": run_id})
