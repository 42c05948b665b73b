-- Workers whose heartbeats stopped, each with what its machine is owed (WORKER-7; WORKER-9: an idle one is never
-- unresponsive), unless that was accepted already. One pass over a narrow table: an index on last_heartbeat would make
-- every heartbeat a new index entry. The scalar subquery is computed once, now() - … would be for every row.
SELECT w.worker_id, w.name, w.state, i.version, owed.trigger AS owed
  FROM interlock.workers w
  JOIN interlock.workflow_instances i ON i.id = w.worker_id
 CROSS JOIN LATERAL (
        SELECT CASE w.state WHEN 'busy' THEN 'health_check_timeout' WHEN 'suspended' THEN 'resume'
                            ELSE 'max_timeout_exceeded' END AS trigger) owed
 WHERE w.last_heartbeat < (SELECT now() - make_interval(secs => LEAST(%(silent_seconds)s, %(gone_seconds)s)))
   AND w.last_heartbeat < CASE w.state WHEN 'busy' THEN now() - make_interval(secs => %(silent_seconds)s)
                                       WHEN 'initializing' THEN NULL WHEN 'shutdown' THEN NULL
                                       ELSE now() - make_interval(secs => %(gone_seconds)s) END
   AND NOT EXISTS (SELECT FROM interlock.trigger_requests r
                    WHERE r.request_id = 'interlock:' || w.worker_id || ':' || i.version || ':' || owed.trigger)
 LIMIT %(limit)s
   FOR NO KEY UPDATE OF w SKIP LOCKED
