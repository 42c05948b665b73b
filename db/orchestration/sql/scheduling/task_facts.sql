-- What decides about tasks, beside their own state. The array is a subquery's, or PostgreSQL would plan this anew for each number of
-- tasks, which takes longer than it runs.
SELECT t.task_id AS id, i.version, i.entity_id, t.state, t.unmet, t.dead, w.state AS workstream_state, r.state AS run_state,
       (SELECT p.current_state <> 'open' FROM interlock.workflow_instances p WHERE p.id = w.phase) IS TRUE AS frozen,
       g.open AS gates_open, g.lost_gate, b.failed AS failed_before, p.open AS patches_open, p.lost_patch
  FROM interlock.tasks t
  JOIN interlock.workflow_instances i ON i.id = t.task_id
  JOIN interlock.workstreams w ON w.ws_id = t.workstream_id
  JOIN interlock.runs r ON r.run_id = t.run_id
  CROSS JOIN LATERAL interlock.gates_of(t.task_id) g
  LEFT JOIN LATERAL (
        SELECT count(*) FILTER (WHERE g.state IN ('FAILED', 'BLOCKED')) AS failed
          FROM interlock.workflow_links l JOIN interlock.test_gates g ON g.gate_id = l.target_id
         WHERE l.source_id = t.task_id AND l.role = 'blocked_by_gates') b ON true
  LEFT JOIN LATERAL (
        SELECT count(*) FILTER (WHERE p.state NOT IN ('committed', 'quarantined', 'dropped', 'rolled_back')) AS open,
               (array_agg(jsonb_build_object(
                    'patch', pi.entity_id, 'state', p.state, 'reason', COALESCE(p.quarantine_reason, 'nobody said why'))
                    ORDER BY p.ledger_id DESC) FILTER (WHERE p.state IN ('quarantined', 'dropped')))[1] AS lost_patch
          FROM interlock.patch_ledger_entries p
          JOIN interlock.workflow_instances pi ON pi.id = p.ledger_id
         WHERE t.state IN ('running', 'validating') AND p.workstream_id = t.workstream_id AND p.task_id = t.task_id) p ON true
 WHERE t.task_id = ANY (ARRAY(SELECT unnest(%(ids)s::uuid[])))
