-- As heartbeat.sql, for workers of the execution engine: their name is their instance's.
WITH alive AS (
    SELECT worker_id FROM interlock.uet_workers WHERE worker_id = ANY (%(ids)s) AND state <> 'TERMINATED'
     ORDER BY worker_id FOR NO KEY UPDATE
)
UPDATE interlock.uet_workers w SET last_heartbeat = GREATEST(now(), w.last_heartbeat)
  FROM alive a JOIN interlock.workflow_instances i ON i.id = a.worker_id
 WHERE w.worker_id = a.worker_id
RETURNING w.worker_id, i.entity_id AS name, w.state, w.state = 'DRAINING' AS draining
