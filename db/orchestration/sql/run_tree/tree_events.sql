-- The moves in a run that a reader may not have seen: all of transactions that were not over when it looked last. A few
-- that it saw already are among them; it knows these by their `seq`.
SELECT t.workflow_id AS id, t.workflow_type AS kind, t.seq, t.from_state AS was, t.to_state AS state, t.trigger,
       t.triggered_by AS by, COALESCE(t.metadata->>'reason', t.metadata->>'error') AS reason, t.created_at AS at
  FROM interlock.workflow_transitions t
  LEFT JOIN interlock.tasks k ON k.task_id = t.workflow_id
  LEFT JOIN interlock.workstreams w ON w.ws_id = t.workflow_id
  LEFT JOIN interlock.test_gates g ON g.gate_id = t.workflow_id
  LEFT JOIN interlock.patch_ledger_entries p ON p.ledger_id = t.workflow_id
  LEFT JOIN interlock.workflow_links r ON r.source_id = t.workflow_id AND r.role = 'run' AND t.workflow_type = 'regression'
 WHERE t.xid >= %(since)s::text::xid8
   AND t.workflow_type IN ('run', 'workstream', 'task', 'test_gate', 'patch_ledger', 'regression')
   AND %(run)s IN (t.workflow_id, k.run_id, w.run_id, g.run_id, p.run_id, r.target_id)
 ORDER BY t.xid, t.position
