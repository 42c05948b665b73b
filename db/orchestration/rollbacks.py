"""Rollbacks that operators ordered (docs/spec/rollback.md)."""

from typing import TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.fast_path import rows
from interlock.db.schema import in_schema

_ORDER = in_schema("""
SELECT i.entity_id, (i.context->>'ledger_id')::uuid AS ledger_id, i.context->'plan' AS plan,
       i.context->>'commit_sha' AS commit_sha, e.triggered_by AS by, COALESCE(e.metadata->>'reason', '') AS reason
  FROM interlock.workflow_instances i
  JOIN interlock.workflow_transitions e ON e.workflow_id = i.id AND e.seq = %(version)s
 WHERE i.id = %(id)s
""")
_UNDER_WAY = in_schema("""
SELECT i.id FROM interlock.workflow_links l JOIN interlock.workflow_instances i ON i.id = l.source_id
 WHERE l.target_id = %(patch)s AND l.role = 'patch' AND i.workflow_type = 'rollback'
   AND i.current_state = 'rolling_back'
""")


class RollbackOrder(TypedDict):
    """What a rollback is of, how it is made (`plan`, or a commit by people, or neither), who ordered it and why."""

    entity_id: str
    ledger_id: UUID
    plan: dict[str, object] | None
    commit_sha: str | None
    by: str
    reason: str


def ordered(connection: Connection, rollback_id: UUID, version: int) -> RollbackOrder:
    """A rollback, as the event with that version ordered it."""
    (row,) = rows(connection, _ORDER, {"id": rollback_id, "version": version})
    return cast(RollbackOrder, row)


def under_way(connection: Connection, ledger_id: UUID) -> UUID | None:
    """The rollback of a patch that workers carry out now; None: there is none."""
    found = rows(connection, _UNDER_WAY, {"patch": ledger_id})
    return found[0]["id"] if found else None
