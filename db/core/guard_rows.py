"""The typed rows that guards read: for each type, only the columns that its guards use."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.schema import in_schema
from interlock.db.statements import queries

sql = queries(__file__)

# A task's retries (TASK-5).
_TASK = in_schema("""
SELECT task_id AS workflow_id, retry_count, max_retries FROM interlock.tasks WHERE task_id = ANY(%(ids)s)
""")
# How many tasks a worker holds (WORKER-10).
_WORKER = in_schema("""
SELECT worker_id AS workflow_id, current_load FROM interlock.workers WHERE worker_id = ANY(%(ids)s)
""")
# A supervised worker's tasks, and how often it was retried since its last move (SUPERVISED-5).
_SUPERVISED_WORKER = in_schema("""
SELECT w.id AS workflow_id, w.tasks,
       CASE (w.metadata->'retries'->>'since')::integer WHEN i.version THEN (w.metadata->'retries'->>'count')::integer
                                                       ELSE 0 END AS retries
  FROM interlock.supervised_workers w JOIN interlock.workflow_instances i USING (id)
 WHERE w.id = ANY(%(ids)s)
""")
# A run's workstreams, counted by the scheduler.
_RUN = in_schema("""
SELECT run_id AS workflow_id, critical_failures, completed AS completed_workstreams, skipped AS skipped_workstreams,
       completed + failed + cancelled + skipped AS ended_workstreams,
       planned + ready + blocked + executing + validating + paused + completed + failed + cancelled + skipped
           AS total_workstreams
  FROM interlock.run_counts WHERE run_id = ANY(%(ids)s)
""")
# How often a patch was applied again.
_PATCH_LEDGER = in_schema("""
SELECT ledger_id AS workflow_id, apply_retries FROM interlock.patch_ledger_entries WHERE ledger_id = ANY(%(ids)s)
""")

# Who created a schedule (SCHEDULE-3).
_SCHEDULE = in_schema("""
SELECT id AS workflow_id, created_by AS owner FROM interlock.workflow_instances WHERE id = ANY(%(ids)s)
""")

STATEMENTS = {
    "task": _TASK,
    "worker": _WORKER,
    "uet_worker": _WORKER,
    "supervised_worker": _SUPERVISED_WORKER,
    "workstream": sql("row_workstream"),
    "run": _RUN,
    "patch_ledger": _PATCH_LEDGER,
    "schedule": _SCHEDULE,
    "lineage": sql("row_lineage"),
}


def rows(connection: Connection, ids_by_type: Mapping[str, Iterable[UUID]]) -> dict[UUID, RowMapping]:
    """Read the columns of instances' typed rows that guards use.

    Args:
        connection: the round's transaction.
        ids_by_type: type -> instances; those of versions 0.x, which have no tables, under "lineage".

    Returns:
        Instance -> column -> value.
    """
    found: dict[UUID, RowMapping] = {}
    for type_, ids in ids_by_type.items():
        if batch := list(ids):
            for row in connection.exec_driver_sql(STATEMENTS[type_], {"ids": batch}).mappings():
                found[row["workflow_id"]] = row
    return found
