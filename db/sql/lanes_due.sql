-- Every lane with something pending, and its oldest request: one index probe a lane, however much waits.
SELECT l.lane, r.request_id, r.workflow_id, r.trigger, r.triggered_by, r.status, i.workflow_type, i.entity_id
  FROM generate_series(0, 15) AS l (lane)
 CROSS JOIN LATERAL (
        SELECT * FROM trigger_requests p WHERE p.status = 'pending' AND p.lane = l.lane ORDER BY p.seq LIMIT 1) r
  JOIN workflow_instances i ON i.id = r.workflow_id
