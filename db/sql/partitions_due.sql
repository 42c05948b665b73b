-- Every partition with something pending, and its oldest request: one index probe a partition, however much waits.
SELECT l.partition, r.request_id, r.workflow_id, r.trigger, r.triggered_by, r.status, i.workflow_type, i.entity_id
  FROM generate_series(0, 15) AS l (partition)
 CROSS JOIN LATERAL (
        SELECT * FROM interlock.trigger_requests p WHERE p.status = 'pending' AND p.partition = l.partition ORDER BY p.seq LIMIT 1) r
  JOIN interlock.workflow_instances i ON i.id = r.workflow_id
