-- What decides about workstreams, beside their own state.
SELECT w.ws_id AS id, i.version, i.entity_id, w.state, r.state AS run_state, (i.context->>'task_count')::integer - o.left_out AS task_count, c.*,
       (SELECT p.current_state <> 'open' FROM interlock.workflow_instances p WHERE p.id = w.phase) IS TRUE AS frozen,
       interlock.landing_approval(w) AS approval,
       g.open AS gates_open, g.lost AS gates_lost,
       EXISTS (SELECT FROM interlock.patch_ledger_entries p
                WHERE p.workstream_id = w.ws_id
                  AND p.state NOT IN ('committed', 'quarantined', 'dropped', 'rolled_back')) AS patches_open,
       EXISTS (SELECT FROM interlock.patch_ledger_entries p
                WHERE p.workstream_id = w.ws_id AND p.state IN ('rolled_back', 'dropped')  -- not of a task in whose place is another
                  AND NOT EXISTS (SELECT FROM interlock.tasks t WHERE t.task_id = p.task_id AND t.left_out)) AS patches_lost,
       EXISTS (SELECT FROM interlock.effects e WHERE e.workflow_id = w.ws_id AND e.name = 'land_workstream') AS landing
  FROM interlock.workstreams w
  JOIN interlock.workflow_instances i ON i.id = w.ws_id
  JOIN interlock.runs r ON r.run_id = w.run_id
  JOIN interlock.workstream_counts c ON c.ws_id = w.ws_id
  LEFT JOIN LATERAL (
        SELECT count(*)::integer AS left_out FROM interlock.tasks t  -- and with nobody in their place
         WHERE t.workstream_id = w.ws_id AND t.left_out
           AND NOT EXISTS (SELECT FROM interlock.workflow_links l WHERE l.target_id = t.task_id AND l.role = 'retry_of')) o ON true
  LEFT JOIN LATERAL (
        SELECT count(*) FILTER (WHERE g.state <> 'PASSED') AS open, count(*) FILTER (WHERE g.lost) AS lost
          FROM interlock.workflow_links l JOIN interlock.test_gates g ON g.gate_id = l.target_id
         WHERE l.source_id = w.ws_id AND l.role = 'gates') g ON true
 WHERE w.ws_id = ANY(%(ids)s)
