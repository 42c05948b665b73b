-- Workers of the execution engine whose heartbeats stopped, unless that was accepted already (UET-1,
-- UET-2). One that is SPAWNING owes none yet; one that is DRAINING still works, so it does.
SELECT w.worker_id, i.entity_id AS name, w.state, false AS draining, i.version, 'worker_crashed' AS owed
  FROM interlock.uet_workers w
  JOIN interlock.workflow_instances i ON i.id = w.worker_id
 WHERE w.state IN ('IDLE', 'BUSY', 'DRAINING')
   AND w.last_heartbeat < (SELECT now() - make_interval(secs => %(silent_seconds)s))
   AND NOT EXISTS (SELECT FROM interlock.trigger_requests r
                    WHERE r.request_id = 'interlock:' || w.worker_id || ':' || i.version || ':worker_crashed')
 LIMIT %(limit)s
   FOR NO KEY UPDATE OF w SKIP LOCKED
