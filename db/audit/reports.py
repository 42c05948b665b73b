"""What an audit report says: which instances it covers, and what is known of them besides their events."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.schema import in_schema
from interlock.db.statements import queries

sql = queries(__file__)

_MOVED = in_schema("""
SELECT DISTINCT t.workflow_id
  FROM interlock.every_transition t
 WHERE t.created_at >= %(since)s::timestamptz AND t.created_at < %(until)s::timestamptz
   AND (%(project)s::text IS NULL
        OR EXISTS (SELECT FROM interlock.every_instance i WHERE i.id = t.workflow_id AND i.project = %(project)s))
""")
_COUNT = in_schema("""
SELECT count(*), COALESCE(sum(octet_length(t.metadata::text) + 1000), 0)::bigint
  FROM interlock.every_transition t
 WHERE t.workflow_id = ANY(%(ids)s) AND t.created_at >= %(since)s::timestamptz AND t.created_at < %(until)s::timestamptz
""")
# The approvals that triggers on some instances were held for.
_APPROVALS = in_schema("""
SELECT i.id FROM interlock.every_instance i
 WHERE i.workflow_type = 'approval' AND i.context->>'subject_id' = ANY(%(ids)s::text[])
""")
_INSTANCES = in_schema("""
SELECT i.id, i.workflow_type, i.entity_id, i.project, i.definition_version, i.current_state, i.version, i.created_by,
       i.created_at, i.born_version, i.context_sha256, i.bodies, i.born_proof, i.context, birth.hash AS birth_hash,
       i.archived_at IS NOT NULL AS archived
  FROM interlock.every_instance i JOIN interlock.every_birth birth ON birth.id = i.id
 WHERE i.id = ANY(%(ids)s)
 ORDER BY i.id
""")
# Triggers that were accepted and then refused, or failed for good; kept for as long as finished requests are.
_REFUSED = in_schema("""
SELECT r.request_id, r.workflow_id, r.trigger, r.triggered_by, r.authority, r.login, r.status, r.result, r.error,
       r.accepted_at, r.finished_at
  FROM interlock.trigger_requests r
 WHERE r.workflow_id = ANY(%(ids)s) AND r.status IN ('rejected', 'dead')
   AND r.finished_at >= %(since)s::timestamptz AND r.finished_at < %(until)s::timestamptz
 ORDER BY r.finished_at, r.seq
""")
# What somebody was refused on these instances, or in a project whose log of refusals is among them (REFUSAL-4).
_ATTEMPTS = in_schema("""
SELECT t.request_id, COALESCE(t.metadata->>'instance_id', t.workflow_id::text) AS workflow_id,
       t.metadata->>'attempted' AS trigger, t.triggered_by, t.authority, t.login, t.metadata->>'reason' AS message,
       t.created_at
  FROM interlock.workflow_instances l JOIN interlock.workflow_transitions t ON t.workflow_id = l.id
 WHERE l.workflow_type = 'refusal_log' AND t.trigger = 'refuse'
   AND l.project IN (SELECT project FROM interlock.every_instance WHERE id = ANY(%(ids)s::uuid[]))
   AND (l.id = ANY(%(ids)s::uuid[]) OR t.metadata->>'instance_id' = ANY(%(ids)s::text[]))
   AND t.created_at >= %(since)s::timestamptz AND t.created_at < %(until)s::timestamptz
 ORDER BY t.created_at, t.seq
""")
_COMMANDS = in_schema("""
SELECT workflow_id, argv FROM interlock.commands WHERE workflow_id = ANY(%(ids)s)
UNION ALL
SELECT workflow_id, ARRAY(SELECT jsonb_array_elements_text(body->'argv'))
  FROM interlock.archived_records WHERE kind = 'commands' AND workflow_id = ANY(%(ids)s)
""")


@dataclass(frozen=True, slots=True)
class Period:
    """From an instant on, and before another; None: without that end."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """For a statement."""
        return {"since": self.since or "-infinity", "until": self.until or "infinity"}


def belonging(connection: Connection, instance_id: UUID) -> list[UUID]:
    """What a report on an instance covers: itself and what belongs to it, with the approvals of all of these."""
    found = connection.exec_driver_sql(sql("belonging"), {"id": instance_id}).scalars()
    ids = list(dict.fromkeys([instance_id, *(each for each in found if each is not None)]))
    approvals = connection.exec_driver_sql(_APPROVALS, {"ids": list(map(str, ids))}).scalars()
    return list(dict.fromkeys([*ids, *approvals]))


def moved(connection: Connection, period: Period, project: str | None) -> list[UUID]:
    """The instances that moved within a period, of one project or all."""
    return list(connection.exec_driver_sql(_MOVED, period.parameters | {"project": project}).scalars())


def size(connection: Connection, ids: Sequence[UUID], period: Period) -> tuple[int, int]:
    """The number of events that a report on these instances lists, and about how many bytes they take."""
    row = connection.exec_driver_sql(_COUNT, period.parameters | {"ids": list(ids)}).one()
    return row[0], row[1]


def instances(connection: Connection, ids: Sequence[UUID]) -> Sequence[RowMapping]:
    """The instances, live or archived, each with the hash of its birth, in the order of their ids."""
    return connection.exec_driver_sql(_INSTANCES, {"ids": list(ids)}).mappings().all()


def refused(connection: Connection, ids: Sequence[UUID], period: Period) -> Sequence[RowMapping]:
    """The requests on these instances that were rejected or are dead, in the order in which they were settled."""
    return connection.exec_driver_sql(_REFUSED, period.parameters | {"ids": list(ids)}).mappings().all()


def attempts(connection: Connection, ids: Sequence[UUID], period: Period) -> Sequence[RowMapping]:
    """The recorded attempts on these instances at what was not the caller's, oldest first."""
    parameters = period.parameters | {"ids": list(map(str, ids))}
    return connection.exec_driver_sql(_ATTEMPTS, parameters).mappings().all()


def commands(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, list[str]]:
    """Instance -> program and arguments (or the shell's line) of the command that is run for it, if there is one."""
    return {row[0]: list(row[1]) for row in connection.exec_driver_sql(_COMMANDS, {"ids": list(ids)})}
