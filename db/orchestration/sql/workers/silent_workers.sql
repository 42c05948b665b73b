-- Workers whose heartbeats stopped, each with what its machine is owed, unless that was accepted already (WORKER-7; WORKER-9: an
-- idle one is never unresponsive). Whoever holds a claim is watched like a busy worker: NULL is owed to one that is not busy, which
-- only loses its tasks. One pass over a narrow table: an index on last_heartbeat would make every heartbeat a new index entry.
-- The scalar subqueries are computed once, now() - … would be for every row.
SELECT w.worker_id, w.name, w.state, w.draining, i.version, owed.trigger AS owed
  FROM interlock.workers w
  JOIN interlock.workflow_instances i ON i.id = w.worker_id
 CROSS JOIN LATERAL (
        SELECT CASE WHEN w.state = 'busy' THEN 'health_check_timeout'
                    WHEN w.last_heartbeat < (SELECT now() - make_interval(secs => %(gone_seconds)s)) THEN 'max_timeout_exceeded'
               END AS trigger) owed
 WHERE w.last_heartbeat < CASE WHEN w.state IN ('initializing', 'shutdown') THEN NULL
                               WHEN w.state = 'busy' OR w.current_load > 0 THEN (SELECT now() - make_interval(secs => %(silent_seconds)s))
                               ELSE (SELECT now() - make_interval(secs => %(gone_seconds)s)) END
   AND NOT EXISTS (SELECT FROM interlock.trigger_requests r
                    WHERE r.request_id = 'interlock:' || w.worker_id || ':' || i.version || ':' || owed.trigger)
 LIMIT %(limit)s
   FOR NO KEY UPDATE OF w SKIP LOCKED
