-- Let the next pass look at everything of a run that has not ended: signals that count nothing, from a state to itself.
INSERT INTO interlock.run_signals (run_id, kind, entity_id, parent_id, was, state, critical)
SELECT run_id, 'task', task_id, workstream_id, state, state, is_critical FROM interlock.tasks
 WHERE run_id = %(run)s AND state IN ('pending', 'blocked', 'validating')
UNION ALL
SELECT run_id, 'test_gate', gate_id, workstream_id, state, state, false FROM interlock.test_gates
 WHERE run_id = %(run)s AND completed_at IS NULL
UNION ALL
SELECT run_id, 'workstream', ws_id, run_id, state, state, is_critical FROM interlock.workstreams
 WHERE run_id = %(run)s AND completed_at IS NULL
