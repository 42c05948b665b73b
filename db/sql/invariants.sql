-- What PostgreSQL and the scheduler never let be, found all the same: each a broken rule, an instance, and in words how. What
-- an operator's override brought about is excused: its own event says so.
WITH overridden AS (
    SELECT DISTINCT workflow_id FROM workflow_transitions WHERE metadata ? 'operator'
), broken (rule, workflow_id, says) AS (
    SELECT 'SSOT 1.3.7', w.ws_id, 'is completed, but its task ' || i.entity_id || ' is ' || t.state
      FROM workstreams w JOIN tasks t ON t.workstream_id = w.ws_id AND t.state <> 'completed' AND NOT t.left_out
      JOIN workflow_instances i ON i.id = t.task_id
     WHERE w.state = 'completed'
    UNION ALL
    SELECT 'SSOT 3.1.2', t.task_id, 'is completed, but its gate ' || i.entity_id || ' is ' || g.state
      FROM tasks t
      JOIN workflow_links l ON l.source_id = t.task_id AND l.role = 'gates'
      JOIN test_gates g ON g.gate_id = l.target_id AND g.state <> 'PASSED'
      JOIN workflow_instances i ON i.id = g.gate_id
     WHERE t.state = 'completed'
    UNION ALL
    SELECT 'SSOT 1.4.5', t.task_id, 'is ' || t.state || ', but ' || i.entity_id || ', which it depends on, is ' || d.state
      FROM tasks t
      JOIN workflow_links l ON l.source_id = t.task_id AND l.role = 'depends_on'
      JOIN tasks d ON d.task_id = l.target_id AND d.state <> 'completed' AND NOT d.left_out
      JOIN workflow_instances i ON i.id = d.task_id
     WHERE t.state IN ('queued', 'running', 'validating', 'completed')
       AND d.task_id NOT IN (SELECT workflow_id FROM overridden)
    UNION ALL
    SELECT 'SSOT 3.2.1', w.ws_id, 'is completed, but its patch ' || i.entity_id || ' is ' || p.state
      FROM workstreams w
      JOIN patch_ledger_entries p ON p.workstream_id = w.ws_id AND p.state NOT IN ('verified', 'committed', 'rolled_back', 'dropped')
      JOIN workflow_instances i ON i.id = p.ledger_id
     WHERE w.state = 'completed'
    UNION ALL
    SELECT 'SSOT 3.3.1', r.run_id, 'has succeeded, but its workstream ' || i.entity_id || ' is ' || w.state
      FROM runs r JOIN workstreams w ON w.run_id = r.run_id AND w.state NOT IN ('completed', 'skipped')
      JOIN workflow_instances i ON i.id = w.ws_id
     WHERE r.state = 'succeeded'
    UNION ALL
    SELECT 'SSOT 1.5.7', k.worker_id, 'is shut down, but its task ' || i.entity_id || ' is running'
      FROM workers k JOIN tasks t ON t.worker_id = k.worker_id AND t.state = 'running'
      JOIN workflow_instances i ON i.id = t.task_id
     WHERE k.state = 'shutdown'
    UNION ALL
    SELECT 'seed 000, recovery 4', w.workflow_id, 'is in S_SUCCESS, but its step ' || s.step_id || ' is in ' || s.state
      FROM lineage.workstreams w JOIN lineage.steps s ON s.ws_id = w.ws_id AND s.state <> 'S_SUCCESS'
     WHERE w.state = 'S_SUCCESS'
    UNION ALL
    SELECT 'one state, told once', i.id, 'stands in ' || i.current_state || ', but its typed row says ' || t.state
      FROM workflow_instances i
      JOIN (SELECT run_id AS id, state FROM runs
            UNION ALL SELECT ws_id, state FROM workstreams
            UNION ALL SELECT task_id, state FROM tasks
            UNION ALL SELECT worker_id, state FROM workers
            UNION ALL SELECT worker_id, state FROM uet_workers
            UNION ALL SELECT ledger_id, state FROM patch_ledger_entries
            UNION ALL SELECT gate_id, state FROM test_gates
            UNION ALL SELECT breaker_id, state FROM circuit_breakers
            UNION ALL SELECT id, status FROM supervised_workers
            UNION ALL SELECT id, status FROM jobs) t USING (id)
     WHERE t.state <> i.current_state
)
SELECT b.rule, i.workflow_type, i.entity_id, b.workflow_id, b.says
  FROM broken b JOIN every_instance i ON i.id = b.workflow_id
 WHERE b.workflow_id NOT IN (SELECT workflow_id FROM overridden)
 ORDER BY b.workflow_id, b.says
 LIMIT %(limit)s
