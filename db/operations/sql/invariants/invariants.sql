-- What PostgreSQL and the scheduler never let be, found all the same: each a broken rule, an instance, and in words how. What
-- an operator's override brought about is excused: its own event says so.
WITH overridden AS (
    SELECT DISTINCT workflow_id FROM interlock.workflow_transitions WHERE metadata ? 'operator'
), broken (rule, workflow_id, message) AS (
    SELECT 'WORKSTREAM-2', w.ws_id, 'is completed, but its task ' || i.entity_id || ' is ' || t.state
      FROM interlock.workstreams w JOIN interlock.tasks t ON t.workstream_id = w.ws_id AND t.state <> 'completed' AND NOT t.left_out
      JOIN interlock.workflow_instances i ON i.id = t.task_id
     WHERE w.state = 'completed'
    UNION ALL
    SELECT c.rule, c.id, 'is completed, but its gate ' || i.entity_id || ' is ' || g.state
      FROM (SELECT 'TASK-10', task_id FROM interlock.tasks WHERE state = 'completed'
            UNION ALL SELECT 'WORKSTREAM-8', ws_id FROM interlock.workstreams WHERE state = 'completed') c (rule, id)
      JOIN interlock.workflow_links l ON l.source_id = c.id AND l.role = 'gates'
      JOIN interlock.test_gates g ON g.gate_id = l.target_id AND g.state <> 'PASSED'
      JOIN interlock.workflow_instances i ON i.id = g.gate_id
    UNION ALL
    SELECT 'TASK-1', t.task_id, 'is ' || t.state || ', but ' || i.entity_id || ', which it depends on, is ' || d.state
      FROM interlock.tasks t
      JOIN interlock.workflow_links l ON l.source_id = t.task_id AND l.role = 'depends_on'
      JOIN interlock.tasks d ON d.task_id = l.target_id AND d.state <> 'completed' AND NOT d.left_out
      JOIN interlock.workflow_instances i ON i.id = d.task_id
     WHERE t.state IN ('queued', 'running', 'validating', 'completed')
       AND d.task_id NOT IN (SELECT workflow_id FROM overridden)
    UNION ALL
    SELECT 'WORKSTREAM-8', w.ws_id, 'is completed, but its patch ' || i.entity_id || ' is ' || p.state
      FROM interlock.workstreams w
      JOIN interlock.patch_ledger_entries p ON p.workstream_id = w.ws_id AND p.state NOT IN ('verified', 'committed', 'rolled_back', 'dropped')
       AND NOT EXISTS (SELECT FROM interlock.tasks t WHERE t.task_id = p.task_id AND t.left_out)
      JOIN interlock.workflow_instances i ON i.id = p.ledger_id
     WHERE w.state = 'completed'
    UNION ALL
    SELECT 'RUN-2', r.run_id, 'has succeeded, but its workstream ' || i.entity_id || ' is ' || w.state
      FROM interlock.runs r JOIN interlock.workstreams w ON w.run_id = r.run_id AND w.state NOT IN ('completed', 'skipped') AND NOT w.left_out
      JOIN interlock.workflow_instances i ON i.id = w.ws_id
     WHERE r.state = 'succeeded'
    UNION ALL
    SELECT 'WORKER-4', k.worker_id, format('has a load of %%s, but holds %%s claims', k.current_load, COALESCE(held.claims, 0))
      FROM interlock.workers k
      LEFT JOIN (SELECT worker_id, count(*) AS claims FROM interlock.task_claims WHERE ended_at IS NULL GROUP BY worker_id) held
           USING (worker_id)
     WHERE k.current_load <> COALESCE(held.claims, 0)
    UNION ALL
    SELECT 'WORKER-12', k.worker_id, 'is shut down, but its task ' || i.entity_id || ' is running'
      FROM interlock.workers k JOIN interlock.tasks t ON t.worker_id = k.worker_id AND t.state = 'running'
      JOIN interlock.workflow_instances i ON i.id = t.task_id
     WHERE k.shutdown_at IS NOT NULL
    UNION ALL
    SELECT 'LEGACY-8', w.workflow_id, 'is in S_SUCCESS, but its step ' || s.step_id || ' is in ' || s.state
      FROM interlock.lineage_workstreams w JOIN interlock.lineage_steps s ON s.ws_id = w.ws_id AND s.state <> 'S_SUCCESS'
     WHERE w.state = 'S_SUCCESS'
    UNION ALL
    SELECT 'state and typed row agree', i.id, 'stands in ' || i.current_state || ', but its typed row says ' || t.state
      FROM interlock.workflow_instances i
      JOIN (SELECT run_id AS id, state FROM interlock.runs
            UNION ALL SELECT ws_id, state FROM interlock.workstreams
            UNION ALL SELECT task_id, state FROM interlock.tasks
            UNION ALL SELECT worker_id, state FROM interlock.workers
            UNION ALL SELECT ledger_id, state FROM interlock.patch_ledger_entries
            UNION ALL SELECT gate_id, state FROM interlock.test_gates
            UNION ALL SELECT breaker_id, state FROM interlock.circuit_breakers
            UNION ALL SELECT id, status FROM interlock.supervised_workers
            UNION ALL SELECT id, status FROM interlock.jobs) t USING (id)
     WHERE t.state <> i.current_state
)
SELECT b.rule, i.workflow_type, i.entity_id, b.workflow_id, b.message
  FROM broken b JOIN interlock.every_instance i ON i.id = b.workflow_id
 WHERE b.workflow_id NOT IN (SELECT workflow_id FROM overridden)
 ORDER BY b.workflow_id, b.message
 LIMIT %(limit)s
