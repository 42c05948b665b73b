"""Births: many instances of one type, made by one statement with the database's triggers active."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import psycopg

from interlock.db.schema import in_schema
from interlock.db.statements import as_json

BORN = in_schema("""
INSERT INTO interlock.workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project,
                                          context, created_by)
SELECT uuidv7(), %(type)s::text, %(version)s, %(state)s, %(prefix)s::text || n,
       '00000000-0000-7000-8000-000000000000', %(context)s::jsonb, 'bench'
  FROM generate_series(1, %(count)s) AS n
RETURNING id
""")


def bear(
    connection: psycopg.Connection[Any],
    type_: str,
    state: str,
    count: int,
    *,
    version: str = "1.0.0",
    context: Mapping[str, Any] | None = None,
    prefix: str | None = None,
) -> list[UUID]:
    """Create `count` instances in their initial state, named by a prefix and a number; returns their ids."""
    given = {"type": type_, "version": version, "state": state, "count": count, "context": as_json(context or {})}
    given["prefix"] = f"{type_}-" if prefix is None else prefix
    return [row[0] for row in connection.execute(BORN, given)]
