-- The requests that say why an instance stands where it does: open ones, dead ones, and the last one refused there.
-- Those bound to a state that it has left since say nothing any more.
SELECT r.workflow_id, r.request_id, r.trigger, r.triggered_by, r.origin, r.status, r.attempts, r.not_before, r.error,
       r.result, extract(epoch FROM now() - GREATEST(r.accepted_at, r.not_before))::double precision AS due_seconds,
       a.id AS approval_id, a.version AS approval_version, a.workflow_type || '/' || a.entity_id AS approval, a.context->'deciders' AS deciders
  FROM interlock.trigger_requests r
  JOIN interlock.workflow_instances i ON i.id = r.workflow_id
  LEFT JOIN interlock.workflow_transitions t ON t.workflow_id = i.id AND t.seq = i.version
  LEFT JOIN interlock.workflow_instances a ON a.id = r.held_by
 WHERE r.workflow_id = ANY(%(ids)s)
   AND (r.bound_version IS NULL OR r.bound_version = i.version)
   AND (r.status IN ('pending', 'scheduled', 'waiting')
        OR (r.status IN ('dead', 'rejected') AND r.result->>'was' IS DISTINCT FROM 'dead'  -- settled by an operator
            AND r.finished_at >= COALESCE(t.created_at, i.created_at)))
 ORDER BY r.seq
