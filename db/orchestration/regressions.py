"""Gates that failed after patches of their run had landed, and the searches for the patch that broke them."""

from collections.abc import Collection, Sequence
from typing import TypedDict, cast
from uuid import UUID

from sqlalchemy import Connection, RowMapping

from interlock.db.core import instances
from interlock.db.fast_path import rows
from interlock.db.schema import in_schema

# Of these gates of a run those for which a search is due: the plan wants it, patches have landed, in this run or in one
# that it carries on, and none was begun before.
_DUE = in_schema("""
SELECT g.gate_id, i.entity_id, COALESCE(i.context->>'name', i.entity_id) AS gate, i.project
  FROM interlock.test_gates g
  JOIN interlock.workflow_instances i ON i.id = g.gate_id
  JOIN interlock.commands c ON c.workflow_id = g.gate_id
  JOIN interlock.plans p ON p.run_id = g.run_id
 WHERE g.gate_id = ANY(%(gates)s) AND g.run_id = %(run)s
   AND jsonb_typeof(p.body->'repository') = 'object'
   AND p.body->'repository'->>'regressions' IS DISTINCT FROM 'ignore'
   AND EXISTS (SELECT FROM interlock.workstreams o JOIN interlock.workflow_instances oi ON oi.id = o.ws_id
                 JOIN interlock.workstreams w ON w.ws_id IN (o.ws_id, (oi.context->>'carried_from')::uuid)
                 JOIN interlock.patch_ledger_entries e ON e.workstream_id = w.ws_id AND e.state = 'committed'
                WHERE o.run_id = g.run_id AND w.state = 'completed')
   AND NOT EXISTS (SELECT FROM interlock.workflow_links l JOIN interlock.workflow_instances s ON s.id = l.source_id
                    WHERE l.target_id = g.run_id AND l.role = 'run' AND s.workflow_type = 'regression'
                      AND s.context->>'gate_id' = g.gate_id::text)
 ORDER BY g.gate_id
""")
# A regression with its run and the result of its gate.
_SEARCH = in_schema("""
SELECT i.id, i.entity_id, i.project, r.id AS run_id, r.entity_id AS run, r.created_by AS submitted_by, g.gate_id,
       i.context->>'gate' AS gate, g.exit_code, right(COALESCE(NULLIF(g.stderr, ''), g.stdout), 2000) AS output
  FROM interlock.workflow_instances i
  JOIN interlock.workflow_instances r ON r.id = (i.context->>'run_id')::uuid
  JOIN interlock.test_gates g ON g.gate_id = (i.context->>'gate_id')::uuid
 WHERE i.id = %(id)s
""")
# Another run that carries the patch over may blame it at the same time.
_HELD = in_schema("SELECT FROM interlock.patch_ledger_entries WHERE ledger_id = %(patch)s FOR NO KEY UPDATE")
_BLAMED = in_schema("""
SELECT i.id, i.entity_id FROM interlock.workflow_links l JOIN interlock.workflow_instances i ON i.id = l.source_id
 WHERE l.target_id = %(patch)s AND l.role = 'culprit'
""")
# Who decided on the rollback, in the event with that version: whoever submitted the plan, where the plan allows it.
_DECIDED = in_schema("""
SELECT CASE WHEN e.trigger = 'roll_back_allowed' THEN COALESCE(e.metadata->>'authorized_by', e.triggered_by)
            ELSE e.triggered_by END AS by, l.target_id AS ledger_id
  FROM interlock.workflow_transitions e
  LEFT JOIN interlock.workflow_links l ON l.source_id = e.workflow_id AND l.role = 'culprit'
 WHERE e.workflow_id = %(id)s AND e.seq = %(version)s
""")
# A run's regressions, each with what its search found, its first event, and why it moved last.
_OF_RUN = in_schema("""
SELECT i.id, i.entity_id, i.version, i.current_state AS state, i.context->>'gate' AS gate,
       f.metadata->>'patch' AS patch, f.metadata->>'commit_sha' AS commit_sha, e.metadata->>'reason' AS reason,
       i.created_at, i.updated_at
  FROM interlock.workflow_links l
  JOIN interlock.workflow_instances i ON i.id = l.source_id AND i.workflow_type = 'regression'
  LEFT JOIN interlock.workflow_transitions f ON f.workflow_id = i.id AND f.seq = 1
  LEFT JOIN interlock.workflow_transitions e ON e.workflow_id = i.id AND e.seq = i.version
 WHERE l.target_id = %(run)s AND l.role = 'run'
 ORDER BY i.id
""")


class BrokenGate(TypedDict):
    """A failed gate to search for; `gate` is its name in the plan."""

    gate_id: UUID
    entity_id: str
    gate: str
    project: str


class RegressionSearch(TypedDict):
    """A regression, its run and who submitted that, its gate's exit code and the end of what it printed."""

    id: UUID
    entity_id: str
    project: str
    run_id: UUID
    run: str
    submitted_by: str
    gate_id: UUID
    gate: str
    exit_code: int | None
    output: str | None


class RollbackDecision(TypedDict):
    """`by`: who decided on a rollback; `ledger_id`: the patch (None: there is none)."""

    by: str
    ledger_id: UUID | None


def due(connection: Connection, run_id: UUID, gates: Collection[UUID]) -> list[BrokenGate]:
    """Those of a run's failed gates to search for."""
    if not gates:
        return []
    return cast(list[BrokenGate], rows(connection, _DUE, {"run": run_id, "gates": list(gates)}))


def search(connection: Connection, regression_id: UUID) -> RegressionSearch:
    """A regression, as its search needs it."""
    (row,) = rows(connection, _SEARCH, {"id": regression_id})
    return cast(RegressionSearch, row)


def blame(connection: Connection, regression: RegressionSearch, ledger_id: UUID) -> str | None:
    """Link a regression to the patch that it blames, unless another one is linked to it: the name of that one.

    The caller is the only one in its run that does so (`exclusive`).
    """
    connection.exec_driver_sql(_HELD, {"patch": ledger_id})
    if found := connection.exec_driver_sql(_BLAMED, {"patch": ledger_id}).mappings().first():
        return None if found["id"] == regression["id"] else str(found["entity_id"])
    link = {"source_id": regression["id"], "role": "culprit", "inverse": "blamed_by", "type": "patch_ledger"}
    instances.link(
        connection, [link | {"project": regression["project"], "target": str(ledger_id), "target_id": ledger_id}]
    )
    return None


def decided(connection: Connection, regression_id: UUID, version: int) -> RollbackDecision:
    """Who decided on a rollback in the event with that version, and of which patch."""
    (row,) = rows(connection, _DECIDED, {"id": regression_id, "version": version})
    return cast(RollbackDecision, row)


def of_run(connection: Connection, run_id: UUID) -> Sequence[RowMapping]:
    """The regressions of a run, oldest first: names, state, gate, the patch blamed, and why it is in that state."""
    return connection.exec_driver_sql(_OF_RUN, {"run": run_id}).mappings().all()
