"""The typed rows that guards look at: of each type, the columns they read, by instance."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.connection import sql

STATEMENTS = {
    "task": "row_task",
    "worker": "row_worker",
    "workstream": "row_workstream",
    "run": "row_run",
    "patch_ledger": "row_patch_ledger",
    "lineage": "row_lineage",
}


def rows(connection: Connection, wanted: Mapping[str, Iterable[UUID]]) -> dict[UUID, RowMapping]:
    """What guards may read of instances' typed rows.

    Args:
        connection: the round's transaction.
        wanted: type -> instances; those of the older lineage (0.x), which has no tables, under "lineage".

    Returns:
        Instance -> column -> value.
    """
    found: dict[UUID, RowMapping] = {}
    for type_, ids in wanted.items():
        if given := list(ids):
            text = sql(STATEMENTS[type_])
            for row in connection.exec_driver_sql(text, {"ids": given}).mappings():
                found[row["workflow_id"]] = row
    return found
