-- What decides about gates, beside their own state.
SELECT g.gate_id AS id, i.version, i.entity_id, g.state, g.moment, g.reruns_left, g.lost, w.state AS workstream_state,
       r.state AS run_state, d.open AS dependencies_open, d.failed AS dependencies_failed,
       a.waiting AS dependents_waiting, j.waiting AS judged_waiting, j.ready AS judged_ready,
       j.unapplied AS judged_unapplied
  FROM interlock.test_gates g
  JOIN interlock.workflow_instances i ON i.id = g.gate_id
  JOIN interlock.workstreams w ON w.ws_id = g.workstream_id
  JOIN interlock.runs r ON r.run_id = g.run_id
  LEFT JOIN LATERAL (
        SELECT count(*) FILTER (WHERE o.state <> 'PASSED') AS open,
               count(*) FILTER (WHERE o.state IN ('FAILED', 'BLOCKED')) AS failed
          FROM interlock.workflow_links l JOIN interlock.test_gates o ON o.gate_id = l.target_id
         WHERE l.source_id = g.gate_id AND l.role = 'depends_on') d ON true
  LEFT JOIN LATERAL (
        SELECT count(*) AS waiting
          FROM interlock.workflow_links l
          JOIN interlock.test_gates o ON o.gate_id = l.source_id
          JOIN interlock.workstreams ow ON ow.ws_id = o.workstream_id
         WHERE l.target_id = g.gate_id AND l.role = 'depends_on' AND o.state = 'PENDING'
           AND ow.completed_at IS NULL) a ON g.state = 'FAILED'
  LEFT JOIN LATERAL (
        SELECT count(*) FILTER (WHERE t.state IN ('pending', 'blocked', 'queued', 'running', 'retrying')) AS waiting,
               count(*) FILTER (WHERE t.state = 'validating') AS ready,
               count(*) FILTER (WHERE t.state = 'validating' AND EXISTS (
                   SELECT FROM interlock.patch_ledger_entries p
                    WHERE p.workstream_id = t.workstream_id AND p.task_id = t.task_id
                      AND p.state IN ('created', 'validated', 'queued', 'apply_failed'))) AS unapplied
          FROM interlock.workflow_links l JOIN interlock.tasks t ON t.task_id = l.source_id
         WHERE l.target_id = g.gate_id AND l.role = 'gates') j ON true
 WHERE g.gate_id = ANY(%(ids)s)
