-- What a move concerns beside itself, by kind. `opened`, `closing` and `ended` are workstreams that became ready (or went
-- on), are being validated, or ended; `begun` says that the run itself moved.
SELECT 'task' AS kind, task_id AS id FROM interlock.tasks
 WHERE workstream_id = ANY(%(opened)s) AND state = 'pending' AND (unmet = 0 OR dead > 0)
UNION ALL
SELECT 'task', task_id FROM interlock.tasks
 WHERE workstream_id = ANY(%(ended)s) AND completed_at IS NULL
UNION ALL
SELECT 'test_gate', gate_id FROM interlock.test_gates
 WHERE (workstream_id = ANY(%(opened)s) AND moment = 'start' OR workstream_id = ANY(%(closing)s) AND moment = 'final')
   AND state = 'PENDING'
UNION ALL
SELECT 'test_gate', gate_id FROM interlock.test_gates
 WHERE workstream_id = ANY(%(ended)s) AND completed_at IS NULL
UNION ALL
SELECT 'workstream', ws_id FROM interlock.workstreams
 WHERE run_id = %(begun)s AND completed_at IS NULL
UNION ALL
SELECT 'test_gate', l.target_id FROM interlock.workflow_links l  -- gates that judge tasks which have worked, or were given up
 WHERE l.source_id = ANY(%(worked)s) AND l.role = 'gates'
UNION ALL
SELECT i.workflow_type, l.source_id FROM interlock.workflow_links l JOIN interlock.workflow_instances i ON i.id = l.source_id
 WHERE l.target_id = ANY(%(judged)s) AND l.role <> 'retry_of'  -- whatever names a gate that ended
UNION ALL
SELECT 'test_gate', l.target_id FROM interlock.workflow_links l  -- gates that are run again once those waiting for them are blocked
 WHERE l.source_id = ANY(%(judged)s) AND l.role = 'depends_on'
UNION ALL
SELECT 'patch_ledger', ledger_id FROM interlock.patch_ledger_entries  -- the next in turn for the worktree
 WHERE workstream_id = ANY(%(freed)s) AND state = 'validated'
UNION ALL
SELECT 'task', task_id FROM interlock.patch_ledger_entries WHERE ledger_id = ANY(%(patches)s) AND task_id IS NOT NULL
UNION ALL
SELECT 'test_gate', l.target_id FROM interlock.patch_ledger_entries p JOIN interlock.workflow_links l ON l.source_id = p.task_id
 WHERE p.ledger_id = ANY(%(patches)s) AND l.role = 'gates'
