"""Narrowed rights: which are in force (docs/spec/narrowing.md)."""

from collections.abc import Sequence

from sqlalchemy import Connection, RowMapping

from interlock.db.schema import in_schema

# With the event that put each in force: who, why, when.
_LISTED = in_schema("""
SELECT n.project, n.type, n.trigger, n.open_to AS "to", n.narrowing_id, i.entity_id, t.triggered_by AS by,
       t.metadata->>'reason' AS reason, t.created_at AS since
  FROM interlock.narrowings n
  JOIN interlock.workflow_instances i ON i.id = n.narrowing_id
  JOIN interlock.workflow_transitions t
    ON t.workflow_id = i.id AND (t.from_state, t.to_state) = ('proposed', 'in_force')
 WHERE (%(project)s::text IS NULL OR n.project = %(project)s) AND (%(type)s::text IS NULL OR n.type = %(type)s)
   AND (%(trigger)s::text IS NULL OR n.trigger = %(trigger)s)
 ORDER BY n.project, n.type, n.trigger
""")


def listed(
    connection: Connection, *, project: str | None = None, type_: str | None = None, trigger: str | None = None
) -> Sequence[RowMapping]:
    """The narrowings in force, of one project or all, of one type and trigger or all: terms, who, why, since when."""
    wanted = {"project": project, "type": type_, "trigger": trigger}
    return connection.exec_driver_sql(_LISTED, wanted).mappings().all()
