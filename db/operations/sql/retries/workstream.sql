-- A workstream as an operator who wants it done again has to see it; `lacks`: what it depends on and will never have.
SELECT w.ws_id, w.run_id, w.state, w.left_out, r.state AS run_state, ri.entity_id AS run,
       (SELECT n.entity_id FROM interlock.workflow_links l
          JOIN interlock.workstreams o ON o.ws_id = l.source_id AND o.run_id = w.run_id
          JOIN interlock.workflow_instances n ON n.id = o.ws_id
         WHERE l.target_id = w.ws_id AND l.role = 'retry_of' LIMIT 1) AS retried_by,
       (SELECT jsonb_build_object('id', d.ws_id, 'name', di.entity_id, 'state', d.state)
          FROM interlock.workflow_links l
          JOIN interlock.workstreams d ON d.ws_id = l.target_id
          JOIN interlock.workflow_instances di ON di.id = d.ws_id
         WHERE l.source_id = w.ws_id AND l.role = 'depends_on' AND d.state IN ('failed', 'cancelled', 'skipped')
         ORDER BY d.ws_id LIMIT 1) AS lacks
  FROM interlock.workstreams w
  JOIN interlock.runs r ON r.run_id = w.run_id
  JOIN interlock.workflow_instances ri ON ri.id = r.run_id
 WHERE w.ws_id = %(id)s
