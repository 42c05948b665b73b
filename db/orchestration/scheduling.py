"""What the scheduler reads and counts. Only it writes counts, under the run's lock; moves leave it signals."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.connection import sql
from interlock.db.schema import in_schema, lock_number
from interlock.db.statements import Rows, execute, returning

RUN_LOCK = lock_number(0x1E72)  # the advisory locks' namespace

RECOUNT_BORN = {"tasks": "recount_born_tasks", "workstreams": "recount_born_workstreams"}
FACTS = {
    "task": "task_facts",
    "test_gate": "gate_facts",
    "patch_ledger": "patch_facts",
    "workstream": "workstream_facts",
}


def lock(connection: Connection, run_id: UUID) -> None:
    """Be the only scheduler of a run until this transaction ends; waits for its turn."""
    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (RUN_LOCK, str(run_id)))


def take_signals(connection: Connection, run_id: UUID, *, limit: int) -> Sequence[RowMapping]:
    """The moves of a run that no pass has seen, oldest first, at most `limit`; they are gone once this commits."""
    rows = connection.exec_driver_sql(sql("take_signals"), {"run": run_id, "limit": limit}).mappings().all()
    return sorted(rows, key=lambda row: row["id"])


def count_tasks(connection: Connection, changes: Rows) -> None:
    """Add to workstreams' counts; each row has `id` and a change for every count."""
    execute(connection, "count_tasks", changes)


def count_workstreams(connection: Connection, changes: Rows) -> None:
    """Add to runs' counts; each row has `id` and a change for every count."""
    execute(connection, "count_workstreams", changes)


def recount_born(connection: Connection, kind: str, born: Iterable[UUID], *, ending: Iterable[UUID]) -> None:
    """Count anew what stands in the way of those just born: what ended before their birth is not told them any more.

    Args:
        connection: the pass's transaction; its signals are taken, and nobody is released yet.
        kind: `tasks` or `workstreams`.
        born: whose birth this pass takes notice of.
        ending: what the signals of this pass end, so that they will be told.
    """
    given = {"born": list(born), "ending": list(ending)}
    if given["born"]:
        connection.exec_driver_sql(sql(RECOUNT_BORN[kind]), given)


def relink_born(connection: Connection, born: Iterable[UUID]) -> None:
    """Let those just born name what stands in the place of a gate or task that they name, where another took it."""
    if given := list(born):
        connection.exec_driver_sql(sql("relink_born"), {"born": given})


def find_gates(connection: Connection, born: Iterable[UUID]) -> set[UUID]:
    """Gates that were lost for want of a task to judge, and have one just born; `lose_gates` may lose them again."""
    if not (given := list(born)):
        return set()
    return {row.id for row in connection.exec_driver_sql(sql("find_gates"), {"born": given})}


def release_tasks(connection: Connection, ended: Mapping[UUID, bool]) -> set[UUID]:
    """Tell those that wait for these tasks or gates how they ended (True: well); the tasks told."""
    rows = [{"id": each, "well": well} for each, well in ended.items()]
    return {row["id"] for row in returning(connection, "release_tasks", rows)}


def release_workstreams(connection: Connection, ended: Mapping[UUID, str]) -> set[UUID]:
    """Tell those that wait for these workstreams in which state they ended; the workstreams told."""
    rows = [{"id": each, "state": state} for each, state in ended.items()]
    return {row["id"] for row in returning(connection, "release_workstreams", rows)}


def lose_gates(connection: Connection, **moves: Iterable[UUID]) -> set[UUID]:
    """Mark gates that can never pass any more, and all that wait for them; those newly marked.

    Args:
        connection: the pass's transaction.
        moves: gates that `failed` for good, workstreams that `ended`, tasks that `worked` or were given up, gates that
            `moved`; all four.
    """
    given = {name: list(ids) for name, ids in moves.items()}
    if not any(given.values()):
        return set()
    return {row.id for row in connection.exec_driver_sql(sql("lose_gates"), given)}


def gates_needed(connection: Connection, gate_id: UUID) -> list[str]:
    """The gates that a gate depends on now."""
    query = in_schema(
        "SELECT target_id FROM interlock.workflow_links WHERE source_id = %s AND role = 'depends_on' ORDER BY target_id"
    )
    return [str(row.target_id) for row in connection.exec_driver_sql(query, (gate_id,))]


def relink_gate(connection: Connection, old: UUID, new: UUID) -> None:
    """Let everything that names a failed gate name the one that is run in its place."""
    connection.exec_driver_sql(sql("relink_gate"), {"old": old, "new": new})


def touched(connection: Connection, **moves: Any) -> list[tuple[str, UUID]]:
    """(kind, id) of what moves concern beside what moved; the names of `moves` are those of `touched.sql`."""
    return [(row.kind, row.id) for row in connection.exec_driver_sql(sql("touched"), moves)]


def facts(connection: Connection, kind: str, ids: Iterable[UUID]) -> list[dict[str, Any]]:
    """What decides about instances of a kind, a row each."""
    if not (given := list(ids)):
        return []
    return [dict(row) for row in connection.exec_driver_sql(sql(FACTS[kind]), {"ids": given}).mappings()]


def run_facts(connection: Connection, run_id: UUID) -> dict[str, Any] | None:
    """A run's state, version and counts."""
    found = connection.exec_driver_sql(sql("run_facts"), {"run": run_id}).mappings().first()
    return dict(found) if found else None


def runs_signalled(connection: Connection, *, limit: int) -> list[UUID]:
    """Runs with signals that no pass has taken, for the sweep."""
    query = in_schema("SELECT run_id FROM interlock.run_signals GROUP BY run_id ORDER BY min(id) LIMIT %s")
    return [row.run_id for row in connection.exec_driver_sql(query, (limit,))]
