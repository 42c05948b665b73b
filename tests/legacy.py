"""Names that break the rule for names: only a DBA can write them, past the triggers."""

from typing import Any
from uuid import UUID

import psycopg


def rename(dba: "psycopg.Connection[Any]", instance_id: UUID, name: str) -> None:
    """Give an instance such a name."""
    with dba.transaction():
        dba.execute("ALTER TABLE workflow_instances DISABLE TRIGGER USER")
        dba.execute("ALTER TABLE workers DISABLE TRIGGER USER")
        dba.execute("UPDATE workflow_instances SET entity_id = %s WHERE id = %s", (name, instance_id))
        dba.execute("UPDATE workers SET name = %s WHERE worker_id = %s", (name, instance_id))
        dba.execute("SELECT always()")
