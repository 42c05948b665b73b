-- Workers that are alive: one heap-only update each, and nothing else is touched. In the order of their ids, so that two
-- who speak for the same workers never wait for each other both.
WITH alive AS (
    SELECT worker_id FROM interlock.workers WHERE worker_id = ANY (%(ids)s) AND state <> 'shutdown'
     ORDER BY worker_id FOR NO KEY UPDATE
)
UPDATE interlock.workers w SET last_heartbeat = GREATEST(now(), last_heartbeat)
  FROM alive a WHERE w.worker_id = a.worker_id
RETURNING w.worker_id, w.name, w.state, w.draining
