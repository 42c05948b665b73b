-- What was lost because of these tasks and gates: tasks that the scheduler cancelled, gates that can never pass; with
-- `misjudged` also tasks that failed because a gate after them could not pass. No task of a workstream that is
-- validating, which takes none in its place (WORKSTREAM-2).
SELECT 'task' AS kind, t.task_id AS id
  FROM interlock.workflow_links l
  JOIN interlock.tasks t ON t.task_id = l.source_id
  JOIN interlock.workstreams w ON w.ws_id = t.workstream_id
  JOIN interlock.workflow_instances i ON i.id = t.task_id
  JOIN interlock.workflow_transitions e ON e.workflow_id = t.task_id AND e.seq = i.version
 WHERE l.target_id = ANY(%(ids)s) AND NOT t.left_out AND e.triggered_by = 'scheduler'
   AND w.completed_at IS NULL AND w.state <> 'validating'
   AND (t.state = 'cancelled' AND e.trigger = 'cancel' AND l.role IN ('depends_on', 'blocked_by_gates')
        OR %(misjudged)s AND t.state = 'failed' AND e.metadata ? 'gate' AND l.role = 'gates')
UNION
SELECT 'test_gate', g.gate_id
  FROM interlock.workflow_links l
  JOIN interlock.test_gates g ON g.gate_id = l.source_id
  JOIN interlock.workstreams w ON w.ws_id = g.workstream_id
 WHERE l.target_id = ANY(%(ids)s) AND l.role = 'depends_on' AND g.lost AND w.completed_at IS NULL
UNION
SELECT 'test_gate', g.gate_id
  FROM interlock.workflow_links l
  JOIN interlock.test_gates g ON g.gate_id = l.target_id
  JOIN interlock.workstreams w ON w.ws_id = g.workstream_id
 WHERE l.source_id = ANY(%(ids)s) AND l.role IN ('gates', 'blocked_by_gates') AND g.lost AND w.completed_at IS NULL
