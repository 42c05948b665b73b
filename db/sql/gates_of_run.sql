-- The gates of a run; of one that was run again only the newest.
SELECT g.gate_id AS id, COALESCE(i.context->>'name', i.entity_id) AS name, g.gate_type, g.state, g.workstream_id
  FROM interlock.test_gates g JOIN interlock.workflow_instances i ON i.id = g.gate_id
 WHERE g.run_id = %(run)s
   AND NOT EXISTS (SELECT FROM interlock.workflow_links l WHERE l.target_id = g.gate_id AND l.role = 'retry_of')
 ORDER BY i.id
