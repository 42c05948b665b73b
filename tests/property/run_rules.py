"""What must hold of a run in PostgreSQL whenever nothing is due, as SQL: each finds what breaks a rule."""

from typing import Any, LiteralString
from uuid import UUID

import psycopg

_LIMITED: LiteralString = """
        SELECT x.{id} FROM {table} x JOIN workflow_instances i ON i.id = x.{id}
         WHERE x.run_id = %(run)s AND x.state = '{running}'
           AND NOT EXISTS (SELECT FROM trigger_requests r
                            WHERE r.workflow_id = x.{id} AND r.trigger = 'timeout_exceeded'
                              AND r.bound_version = i.version AND r.status IN ('scheduled', 'pending'))"""
_GATED: LiteralString = """
        SELECT x.{id} FROM {table} x JOIN workflow_links l ON l.source_id = x.{id} AND l.role = 'gates'
          JOIN test_gates g ON g.gate_id = l.target_id
         WHERE x.run_id = %(run)s AND x.state = 'completed' AND g.state <> 'PASSED'"""
RULES: dict[str, LiteralString] = {
    "WORKSTREAM-1 a workstream is where its tasks are": """
        SELECT w.ws_id FROM workstreams w JOIN tasks t ON t.workstream_id = w.ws_id
         WHERE w.run_id = %(run)s AND NOT t.left_out AND NOT EXISTS (
               SELECT FROM workflow_transitions m WHERE m.workflow_id = w.ws_id AND m.metadata ? 'override')
           AND (w.state IN ('planned', 'ready', 'blocked')
                   AND t.state IN ('running', 'validating', 'completed', 'failed')
                OR w.state = 'validating' AND t.state <> 'completed'
                OR w.state IN ('completed', 'failed', 'cancelled', 'skipped')
                   AND t.state NOT IN ('completed', 'failed', 'cancelled'))""",
    "WORKSTREAM-2 completed is when all tasks are": """
        SELECT w.ws_id FROM workstreams w JOIN tasks t ON t.workstream_id = w.ws_id
         WHERE w.run_id = %(run)s AND w.state = 'completed' AND t.state <> 'completed' AND NOT t.left_out
           AND NOT EXISTS (SELECT FROM workflow_transitions m
                            WHERE m.workflow_id = w.ws_id AND m.metadata ? 'override')""",
    "WORKSTREAM-3 a critical failure fails the workstream": """
        SELECT w.ws_id FROM workstreams w JOIN tasks t ON t.workstream_id = w.ws_id
         WHERE w.run_id = %(run)s AND t.is_critical AND t.state = 'failed' AND NOT t.left_out
           AND w.state NOT IN ('failed', 'cancelled')
           AND NOT EXISTS (SELECT FROM workflow_transitions m
                            WHERE m.workflow_id = w.ws_id AND m.metadata ? 'override')""",
    "PHASE-7 a workstream lands only if one of its phase's approvers has approved that": """
        SELECT w.ws_id FROM workstreams w JOIN plans p ON p.run_id = w.run_id
         WHERE w.run_id = %(run)s AND w.state = 'completed'
           AND jsonb_array_length(p.body->'phases'->w.phase_id->'approvers') > 0
           AND NOT EXISTS (SELECT FROM workflow_links l JOIN workflow_instances a ON a.id = l.source_id
                            WHERE l.target_id = w.ws_id AND l.role = 'lands' AND a.current_state = 'approved')""",
    "WORKSTREAM-5 only what completed is merged": """
        SELECT w.ws_id FROM workstreams w JOIN effects e ON e.workflow_id = w.ws_id
          JOIN tasks t ON t.workstream_id = w.ws_id
         WHERE w.run_id = %(run)s AND e.name = 'land_workstream' AND t.state <> 'completed' AND NOT t.left_out
           AND NOT EXISTS (SELECT FROM workflow_transitions m
                            WHERE m.workflow_id = w.ws_id AND m.metadata ? 'override')""",
    "WORKSTREAM-6 no workstream begins before those it depends on have completed": """
        SELECT w.ws_id FROM workstreams w JOIN workstreams o ON o.ws_id = ANY (w.depends_on)
         WHERE w.run_id = %(run)s AND o.state <> 'completed'
           AND EXISTS (SELECT FROM workflow_transitions t
                        WHERE t.workflow_id = w.ws_id AND t.to_state IN ('ready', 'executing')
                          AND NOT t.metadata ? 'override')""",
    "CHECK-4 who runs has a worker, and only who runs": """
        SELECT task_id FROM tasks WHERE run_id = %(run)s AND (state = 'running') <> (worker_id IS NOT NULL)""",
    "CHECK-5 no more retries than allowed": """
        SELECT task_id FROM tasks WHERE run_id = %(run)s AND retry_count > max_retries""",
    "CHECK-8 created, started, completed, in this order": """
        SELECT task_id FROM tasks
         WHERE run_id = %(run)s AND NOT (created_at <= COALESCE(started_at, created_at)
                                         AND COALESCE(started_at, created_at) <= COALESCE(completed_at, 'infinity'))""",
    "TASK-1 who was queued has all it depends on completed, and every gate before it passed": """
        SELECT t.task_id FROM tasks t JOIN tasks o ON o.task_id = ANY (t.depends_on)
         WHERE t.run_id = %(run)s AND o.state <> 'completed'
           AND EXISTS (SELECT FROM workflow_transitions m WHERE m.workflow_id = t.task_id AND m.to_state = 'queued')
        UNION ALL
        SELECT t.task_id FROM tasks t JOIN workflow_links l ON l.source_id = t.task_id AND l.role = 'blocked_by_gates'
          JOIN test_gates g ON g.gate_id = l.target_id
         WHERE t.run_id = %(run)s AND g.state <> 'PASSED'
           AND EXISTS (SELECT FROM workflow_transitions m WHERE m.workflow_id = t.task_id AND m.to_state = 'queued')""",
    "TASK-8 who runs has a time limit": _LIMITED.format(table="tasks", id="task_id", running="running"),
    "GATE-4 a running gate has a deadline": _LIMITED.format(table="test_gates", id="gate_id", running="RUNNING"),
    "GATE-11 a gate ends with its workstream": """
        SELECT g.gate_id FROM test_gates g JOIN workstreams w ON w.ws_id = g.workstream_id
         WHERE g.run_id = %(run)s AND w.completed_at IS NOT NULL AND g.completed_at IS NULL""",
    "TASK-10 a task whose gate did not pass is not completed": _GATED.format(table="tasks", id="task_id"),
    "WORKSTREAM-8 a workstream whose gate did not pass is not completed": _GATED.format(
        table="workstreams", id="ws_id"
    ),
    "GATE-7 no gate without a result judges a task that was left out": """
        SELECT g.gate_id FROM tasks t JOIN workflow_links l ON l.source_id = t.task_id AND l.role = 'gates'
          JOIN test_gates g ON g.gate_id = l.target_id
         WHERE t.run_id = %(run)s AND t.left_out AND g.state IN ('PENDING', 'BLOCKED', 'RUNNING')""",
    "GATE-3 a result has an exit code and output": """
        SELECT gate_id FROM test_gates WHERE run_id = %(run)s AND state IN ('PASSED', 'FAILED')
           AND (exit_code IS NULL OR stdout IS NULL OR stderr IS NULL OR completed_at IS NULL)""",
    "a workstream's counts are what its tasks say": """
        SELECT c.ws_id FROM workstream_counts c JOIN workstreams w USING (ws_id),
               unnest(ARRAY['pending', 'queued', 'running', 'validating', 'completed', 'failed', 'retrying',
                            'cancelled', 'blocked']) AS each (state)
         WHERE w.run_id = %(run)s AND (to_jsonb(c) ->> each.state)::int IS DISTINCT FROM
               (SELECT count(*) FROM tasks t
                 WHERE t.workstream_id = c.ws_id AND t.state = each.state AND NOT t.left_out)
        UNION ALL
        SELECT c.ws_id FROM workstream_counts c JOIN workstreams w USING (ws_id)
         WHERE w.run_id = %(run)s AND c.critical_failures <>
               (SELECT count(*) FROM tasks t
                 WHERE t.workstream_id = c.ws_id AND t.state = 'failed' AND t.is_critical AND NOT t.left_out)""",
    "a workstream's counts are what those it depends on say": """
        SELECT c.ws_id FROM workstream_counts c JOIN workstreams w USING (ws_id),
               LATERAL (SELECT count(*) FILTER (WHERE o.state NOT IN ('completed', 'failed', 'cancelled', 'skipped'))
                                   AS unfinished,
                               count(*) FILTER (WHERE o.state = 'skipped') AS skipped,
                               count(*) FILTER (WHERE o.state IN ('failed', 'cancelled')) AS dead
                          FROM workstreams o WHERE o.ws_id = ANY (w.depends_on)) d
         WHERE w.run_id = %(run)s
           AND (c.unfinished_dependencies, c.skipped_dependencies, c.dead_dependencies)
               IS DISTINCT FROM (d.unfinished, d.skipped, d.dead)""",
    "a run's counts are what its workstreams say": """
        SELECT c.run_id FROM run_counts c,
               unnest(ARRAY['planned', 'ready', 'blocked', 'executing', 'validating', 'paused', 'completed', 'failed',
                            'cancelled', 'skipped']) AS each (state)
         WHERE c.run_id = %(run)s AND (to_jsonb(c) ->> each.state)::int IS DISTINCT FROM
               (SELECT count(*) FROM workstreams w
                 WHERE w.run_id = c.run_id AND w.state = each.state AND NOT w.left_out)
        UNION ALL
        SELECT c.run_id FROM run_counts c
         WHERE c.run_id = %(run)s AND c.critical_failures <>
               (SELECT count(*) FROM workstreams w
                 WHERE w.run_id = c.run_id AND w.state = 'failed' AND w.is_critical AND NOT w.left_out)""",
    "what still stands in a task's way is counted": """
        SELECT t.task_id FROM tasks t,
               LATERAL (SELECT (SELECT count(*) FROM tasks o WHERE o.task_id = ANY (t.depends_on)
                                   AND o.state <> 'completed')
                             + (SELECT count(*) FROM workflow_links l JOIN test_gates g ON g.gate_id = l.target_id
                                 WHERE l.source_id = t.task_id AND l.role = 'blocked_by_gates' AND g.state <> 'PASSED')
                               AS unmet) f
         WHERE t.run_id = %(run)s AND t.unmet <> f.unmet""",
    "no signal is left over": "SELECT entity_id FROM run_signals WHERE run_id = %(run)s",
    "nothing the scheduler asked for was refused, or is left": """
        SELECT r.workflow_id, i.entity_id, r.trigger, r.status, r.result FROM trigger_requests r
          JOIN workflow_instances i ON i.id = r.workflow_id
         WHERE i.project = (SELECT project FROM workflow_instances WHERE id = %(run)s)
           AND r.triggered_by = 'scheduler' AND r.status NOT IN ('applied', 'superseded')""",
    "nothing is dead, and nothing was recorded as a fault": """
        SELECT i.id, i.entity_id, i.error FROM workflow_instances i
         WHERE i.project = (SELECT project FROM workflow_instances WHERE id = %(run)s)
           AND (i.error IS NOT NULL
                OR EXISTS (SELECT FROM trigger_requests r WHERE r.workflow_id = i.id AND r.status = 'dead'))""",
}


def broken_rules(dba: "psycopg.Connection[Any]", run: UUID) -> list[tuple[str, Any]]:
    """Each rule that is broken, with what breaks it."""
    found = {name: dba.execute(rule, {"run": run}).fetchall() for name, rule in RULES.items()}
    return [(name, row) for name, rows in found.items() for row in rows]
