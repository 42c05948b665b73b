-- A run's workstreams, each with why it last moved.
SELECT w.ws_id AS id, i.context->>'name' AS name, i.entity_id, i.version, i.context->>'title' AS title, w.state,
       w.is_critical, i.context->>'carried_from' AS carried_from, t.reason, w.created_at, w.updated_at, w.completed_at
  FROM interlock.workstreams w
  JOIN interlock.workflow_instances i ON i.id = w.ws_id
  LEFT JOIN LATERAL (SELECT e.metadata->>'reason' AS reason FROM interlock.workflow_transitions e
                      WHERE e.workflow_id = w.ws_id AND e.seq = i.version) t ON true
 WHERE w.run_id = %(run)s AND (%(ids)s::uuid[] IS NULL OR w.ws_id = ANY(%(ids)s))
 ORDER BY w.ws_id
