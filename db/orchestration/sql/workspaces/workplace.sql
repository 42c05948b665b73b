-- A workstream, its run, and where the plan says that the work is done.
SELECT w.ws_id AS workstream_id, w.state, i.version, i.entity_id, COALESCE(i.context->>'name', i.entity_id) AS workstream,
       EXISTS (SELECT FROM interlock.workflow_links l JOIN interlock.workstreams o ON o.ws_id = l.target_id
                WHERE l.source_id = w.ws_id AND l.role = 'retry_of' AND o.run_id = w.run_id) AS done_again,
       w.run_id, r.entity_id AS run, p.directory, p.body->'repository' AS repository,
       (SELECT ph.current_state <> 'open' FROM interlock.workflow_instances ph WHERE ph.id = w.phase) IS TRUE AS frozen,
       w.phase_id, p.body->'phases'->w.phase_id AS phase,
       jsonb_path_query_array(p.body, '$.workstreams[*].gates[*]') AS gates
  FROM interlock.workstreams w
  JOIN interlock.workflow_instances i ON i.id = w.ws_id
  JOIN interlock.workflow_instances r ON r.id = w.run_id
  LEFT JOIN interlock.plans p ON p.run_id = w.run_id
 WHERE w.ws_id = %(id)s
