-- Let the next pass look at everything of a run that has not ended: signals that count nothing, from a state to itself.
INSERT INTO interlock.run_signals (run_id, kind, entity_id, parent_id, was, state, critical)
SELECT t.run_id, 'task', t.task_id, t.workstream_id, t.state, t.state, t.is_critical
  FROM interlock.tasks t JOIN interlock.workstreams w ON w.ws_id = t.workstream_id
 WHERE t.run_id = %(run)s AND t.completed_at IS NULL
   AND (t.state IN ('pending', 'blocked', 'validating') OR w.completed_at IS NOT NULL)  -- it ends with its workstream
UNION ALL
SELECT run_id, 'test_gate', gate_id, workstream_id, state, state, false FROM interlock.test_gates
 WHERE run_id = %(run)s AND completed_at IS NULL
UNION ALL
SELECT run_id, 'workstream', ws_id, run_id, state, state, is_critical FROM interlock.workstreams
 WHERE run_id = %(run)s AND completed_at IS NULL
