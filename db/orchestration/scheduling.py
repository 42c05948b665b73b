"""What the scheduler reads and counts. Moves insert signals; only the scheduler writes counts, under the run's lock."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from interlock.db.fast_path import Row, rows
from interlock.db.schema import in_schema, lock_number
from interlock.db.statements import Rows, execute, first, queries, returning

sql = queries(__file__)

RUN_LOCK = lock_number(0x1E72)  # the advisory locks' namespace

RECOUNT_BORN = {"tasks": "recount_born_tasks", "workstreams": "recount_born_workstreams"}
FACTS = {
    "task": "task_facts",
    "test_gate": "gate_facts",
    "patch_ledger": "patch_facts",
    "workstream": "workstream_facts",
}

# Take a run's signals, oldest first. Deleting is taking: the run's lock makes this the only taker, and what comes later
# waits for the next pass. By ctid, which no row of this table changes: PostgreSQL reads no index a second time.
_TAKE_SIGNALS = in_schema("""
DELETE FROM interlock.run_signals
 WHERE ctid = ANY (ARRAY(SELECT ctid FROM interlock.run_signals WHERE run_id = %(run)s ORDER BY id LIMIT %(limit)s))
RETURNING id, kind, entity_id, parent_id, was, state, critical,
          EXISTS (SELECT FROM interlock.workflow_links l WHERE l.source_id = entity_id AND l.role = 'gates') AS gated
""")
# Gates that failed and would have been rerun, but no rerun of theirs has a result.
_GIVEN_UP = in_schema("""
SELECT g.gate_id FROM interlock.test_gates g
 WHERE g.workstream_id = ANY(%(ended)s) AND g.state = 'FAILED' AND g.reruns_left > 0
   AND NOT EXISTS (SELECT FROM interlock.workflow_links l JOIN interlock.test_gates o ON o.gate_id = l.source_id
                    WHERE l.target_id = g.gate_id AND l.role = 'retry_of' AND o.state IN ('PASSED', 'FAILED'))
""")
_IS_RERUN = in_schema("""
SELECT EXISTS (SELECT FROM interlock.workflow_links l
                WHERE l.target_id = %(gate)s AND l.role = 'retry_of'
                  AND (EXISTS (SELECT FROM interlock.commands WHERE workflow_id = l.source_id)  -- no stranger's has one
                       OR NOT EXISTS (SELECT FROM interlock.commands WHERE workflow_id = %(gate)s)))
""")
# Whatever named a failed gate names the one that is run in its place.
_RELINK_GATE = in_schema("""
WITH old AS (
    DELETE FROM interlock.workflow_links WHERE target_id = %(old)s AND role <> 'retry_of' RETURNING *
)
INSERT INTO interlock.workflow_links (source_id, role, inverse, target_id)
SELECT source_id, role, inverse, %(new)s FROM old WHERE source_id <> %(new)s
""")
# The approvers that the plan names for the phase of a workstream, and who submitted the plan.
_LANDING_TERMS = in_schema("""
SELECT r.project, r.created_by AS author, p.body->'phases'->w.phase_id->'approvers' AS approvers
  FROM interlock.workstreams w
  JOIN interlock.workflow_instances r ON r.id = w.run_id
  JOIN interlock.plans p ON p.run_id = w.run_id
 WHERE w.ws_id = %(id)s
""")
# What decides about a run.
_RUN_FACTS = in_schema("""
SELECT r.run_id AS id, r.state, i.version, i.entity_id, c.*
  FROM interlock.runs r JOIN interlock.workflow_instances i ON i.id = r.run_id
  JOIN interlock.run_counts c ON c.run_id = r.run_id
 WHERE r.run_id = %(run)s
""")


_LOCK = in_schema("SELECT pg_advisory_xact_lock(%(of)s, hashtext(%(run)s))")
_TRY_LOCK = in_schema("SELECT pg_try_advisory_xact_lock(%(of)s, hashtext(%(run)s)) AS taken")


def lock(connection: Connection, run_id: UUID, *, patient: bool = True) -> bool:
    """Take a run's lock, so that only one scheduler works on it until this transaction ends; whether it was taken.

    Args:
        connection: the pass's transaction.
        run_id: the run.
        patient: wait for it. If not, it is not taken if another transaction has it.
    """
    (row,) = rows(connection, _LOCK if patient else _TRY_LOCK, {"of": RUN_LOCK, "run": str(run_id)})
    return patient or bool(row["taken"])


def take_signals(connection: Connection, run_id: UUID, *, limit: int) -> list[Row]:
    """Take up to `limit` unprocessed signals of a run, oldest first. They are deleted by this transaction."""
    return sorted(rows(connection, _TAKE_SIGNALS, {"run": run_id, "limit": limit}), key=lambda row: row["id"])


def count_tasks(connection: Connection, changes: Rows) -> list[Row]:
    """Add to workstreams' counts; each row has `id` and a change for every count.

    Returns:
        For each workstream its `ws_id`, `state` and `run_state`, and its counts.
    """
    return returning(connection, sql("count_tasks"), changes)


def count_workstreams(connection: Connection, changes: Rows) -> None:
    """Add to runs' counts; each row has `id` and a change for every count."""
    execute(connection, sql("count_workstreams"), changes)


def recount_born(connection: Connection, kind: str, born: Iterable[UUID], *, ending: Iterable[UUID]) -> None:
    """Recount the open dependencies of new instances, because some dependencies may have ended before they existed.

    Args:
        connection: the pass's transaction, after `take_signals` and before `release_tasks` and `release_workstreams`.
        kind: `tasks` or `workstreams`.
        born: the instances whose creation is among the signals of this pass.
        ending: the instances whose end is among them; `release_…` will count these.
    """
    parameters = {"born": list(born), "ending": list(ending)}
    if parameters["born"]:
        connection.exec_driver_sql(sql(RECOUNT_BORN[kind]), parameters)


def relink_born(connection: Connection, born: Iterable[UUID]) -> None:
    """Redirect the links of new instances from a gate or task that was replaced to its replacement."""
    if instance_ids := list(born):
        connection.exec_driver_sql(sql("relink_born"), {"born": instance_ids})


def reopen_gates(connection: Connection, born: Iterable[UUID]) -> set[UUID]:
    """Reopen gates that were lost for lack of a task and now have a new one; `mark_gates_lost` may mark them again."""
    if not (instance_ids := list(born)):
        return set()
    return {row.id for row in connection.exec_driver_sql(sql("reopen_gates"), {"born": instance_ids})}


def release_tasks(connection: Connection, ended: Mapping[UUID, bool]) -> set[UUID]:
    """Count these ended tasks or gates (True: succeeded) in the tasks that wait for them; returns those tasks."""
    given = [{"id": each, "well": well} for each, well in ended.items()]
    return {row["id"] for row in returning(connection, sql("release_tasks"), given)}


def release_workstreams(connection: Connection, ended: Mapping[UUID, str]) -> set[UUID]:
    """Count these ended workstreams in the workstreams that wait for them; returns those."""
    given = [{"id": each, "state": state} for each, state in ended.items()]
    return {row["id"] for row in returning(connection, sql("release_workstreams"), given)}


def gates_given_up(connection: Connection, ended: Collection[UUID]) -> list[UUID]:
    """Gates of ended workstreams that failed and would have been rerun, but the rerun has no result (REGRESSION-1)."""
    if not ended:
        return []
    return list(connection.exec_driver_sql(_GIVEN_UP, {"ended": list(ended)}).scalars())


def mark_gates_lost(connection: Connection, **moves: Iterable[UUID]) -> set[UUID]:
    """Mark as lost the gates that can never pass, and the gates that depend on them; returns those newly marked.

    Args:
        connection: the pass's transaction.
        moves: gates that `failed` for good, workstreams that `ended`, tasks with gates that `worked` or were given up,
            gates that `moved`; all four.
    """
    parameters = {name: list(ids) for name, ids in moves.items()}
    if not any(parameters.values()):
        return set()
    return {row.id for row in connection.exec_driver_sql(sql("mark_gates_lost"), parameters)}


def gates_needed(connection: Connection, gate_id: UUID) -> list[str]:
    """The gates that a gate currently depends on."""
    query = in_schema(
        "SELECT target_id FROM interlock.workflow_links WHERE source_id = %s AND role = 'depends_on' ORDER BY target_id"
    )
    return [str(row.target_id) for row in connection.exec_driver_sql(query, (gate_id,))]


def is_rerun(connection: Connection, gate: UUID) -> bool:
    """Whether another gate was made in place of this one."""
    return bool(connection.exec_driver_sql(_IS_RERUN, {"gate": gate}).scalar_one())


def relink_gate(connection: Connection, old: UUID, new: UUID) -> None:
    """Redirect all links from a failed gate to the gate that replaces it."""
    connection.exec_driver_sql(_RELINK_GATE, {"old": old, "new": new})


def touched(connection: Connection, **moves: Any) -> list[tuple[str, UUID]]:
    """(kind, id) of the other instances that moves concern; `moves` has the parameters of `touched.sql`."""
    if not any(moves.values()):
        return []
    return [(row.kind, row.id) for row in connection.exec_driver_sql(sql("touched"), moves)]


def facts(connection: Connection, kind: str, ids: Iterable[UUID]) -> list[dict[str, Any]]:
    """The facts from which the next trigger of each instance is derived, one row each."""
    if not (instance_ids := list(ids)):
        return []
    return rows(connection, sql(FACTS[kind]), {"ids": instance_ids})


def landing_terms(connection: Connection, workstream_id: UUID) -> Row:
    """Who decides about a workstream's landing: project, author (who submitted the plan) and approvers."""
    (terms,) = rows(connection, _LANDING_TERMS, {"id": workstream_id})
    return terms


def run_facts(connection: Connection, run_id: UUID) -> dict[str, Any] | None:
    """A run's state, version and counts."""
    return first(connection, _RUN_FACTS, {"run": run_id})


def runs_signalled(connection: Connection, *, limit: int) -> list[UUID]:
    """The runs with unprocessed signals, for the sweep."""
    query = in_schema("SELECT run_id FROM interlock.run_signals GROUP BY run_id ORDER BY min(id) LIMIT %s")
    return [row.run_id for row in connection.exec_driver_sql(query, (limit,))]
