-- Workers whose heartbeats stopped, each with what its machine is owed, unless that was accepted already (WORKER-7, UET-2;
-- WORKER-9: an idle one is never unresponsive). Whoever holds a claim is watched like a busy worker: NULL is owed to one that is not
-- busy, which only loses its tasks. So does one that has ended and holds claims all the same (WORKER-12), however it was ended.
-- One pass over a narrow table: an index on last_heartbeat would make every heartbeat a new index entry.
-- The scalar subqueries are computed once, now() - … would be for every row.
SELECT w.worker_id, w.name, w.state, w.draining AND w.shutdown_at IS NULL AS draining, i.version, owed.trigger AS owed,
       w.shutdown_at IS NOT NULL AS ended
  FROM interlock.workers w
  JOIN interlock.workflow_instances i ON i.id = w.worker_id
 CROSS JOIN LATERAL (
        SELECT CASE WHEN w.shutdown_at IS NOT NULL THEN NULL
                    WHEN w.project IS NOT NULL THEN 'worker_crashed'
                    WHEN w.state = 'busy' THEN 'health_check_timeout'
                    WHEN w.last_heartbeat < (SELECT now() - make_interval(secs => %(gone_seconds)s)) THEN 'max_timeout_exceeded'
               END AS trigger) owed
 WHERE CASE WHEN w.shutdown_at IS NOT NULL THEN w.current_load > 0
            WHEN w.state IN ('initializing', 'SPAWNING') THEN false
            WHEN w.state IN ('busy', 'IDLE', 'BUSY', 'DRAINING') OR w.current_load > 0
                THEN w.last_heartbeat < (SELECT now() - make_interval(secs => %(silent_seconds)s))
            ELSE w.last_heartbeat < (SELECT now() - make_interval(secs => %(gone_seconds)s)) END
   AND NOT EXISTS (SELECT FROM interlock.trigger_requests r
                    WHERE r.request_id = 'interlock:' || w.worker_id || ':' || i.version || ':' || owed.trigger)
 LIMIT %(limit)s
   FOR NO KEY UPDATE OF w SKIP LOCKED
