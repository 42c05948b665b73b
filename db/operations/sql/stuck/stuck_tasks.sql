-- What tasks wait for: their workstream and run, who holds them, and who could take them.
SELECT t.task_id AS id, t.state, t.kind, t.required_capabilities, t.last_error, t.retry_count, t.max_retries,
       t.tool, t.limit_key, w.ws_id, w.state AS workstream_state, wi.entity_id AS workstream,
       wi.version AS workstream_version,
       r.run_id, r.state AS run_state, ri.entity_id AS run, ri.version AS run_version,
       k.name AS worker, k.state AS worker_state,
       extract(epoch FROM now() - k.last_heartbeat)::double precision AS heartbeat_seconds,
       k.last_heartbeat >= now() - make_interval(secs => %(silent)s) AS worker_answers,
       c.name AS claimed_by, extract(epoch FROM now() - c.claimed_at)::double precision AS claimed_seconds,
       hands.*, (SELECT s.version FROM interlock.workflow_instances s WHERE s.id = hands.suspended_id) AS suspended_version,
       b.state AS breaker_state, interlock.turned_away_until(b) AS breaker_until,
       GREATEST(0, extract(epoch FROM interlock.turned_away_until(b) - now())::double precision) AS breaker_seconds
  FROM interlock.tasks t
  JOIN interlock.workflow_instances i ON i.id = t.task_id
  JOIN interlock.workstreams w ON w.ws_id = t.workstream_id JOIN interlock.workflow_instances wi ON wi.id = w.ws_id
  JOIN interlock.runs r ON r.run_id = t.run_id JOIN interlock.workflow_instances ri ON ri.id = r.run_id
  LEFT JOIN interlock.workers k ON k.worker_id = t.worker_id
  LEFT JOIN LATERAL (SELECT h.name, c.claimed_at FROM interlock.task_claims c JOIN interlock.workers h USING (worker_id)
                      WHERE c.task_id = t.task_id AND c.revoked_at IS NULL AND c.ended_at IS NULL) c ON true
  LEFT JOIN interlock.circuit_breakers b ON b.project = i.project AND b.tool_id = t.tool
 CROSS JOIN LATERAL (
        SELECT ARRAY(SELECT need FROM unnest(interlock.required_by(t)) AS need
                      WHERE NOT EXISTS (SELECT FROM interlock.workers o WHERE o.shutdown_at IS NULL AND need = ANY (o.capabilities)
                                                                                      AND COALESCE(o.project, i.project) = i.project))
                   AS nobody_offers,
               count(*) AS able,
               count(*) FILTER (WHERE may.take) AS fitting,
               count(*) FILTER (WHERE may.take AND f.draining) AS fitting_draining,
               min(f.name) FILTER (WHERE may.take AND f.state = 'suspended') AS fitting_suspended,
               (array_agg(f.worker_id ORDER BY f.name) FILTER (WHERE may.take AND f.state = 'suspended'))[1] AS suspended_id,
               min(f.name) FILTER (WHERE may.take AND (f.state = 'unresponsive'
                                      OR f.last_heartbeat < now() - make_interval(secs => %(silent)s))) AS fitting_silent,
               min(f.name) FILTER (WHERE may.take AND f.state IN ('idle', 'IDLE') AND NOT f.draining AND f.current_load < f.max_concurrent_tasks
                                     AND f.last_heartbeat >= now() - make_interval(secs => %(silent)s)) AS fitting_free
          FROM interlock.workers f
         CROSS JOIN LATERAL (SELECT interlock.affinities_fit(f, t, w, wi) AS take) may
         WHERE f.shutdown_at IS NULL AND COALESCE(f.project, i.project) = i.project AND t.state = 'queued'
           AND interlock.required_by(t) <@ f.capabilities
       ) hands
 WHERE t.task_id = ANY(%(ids)s)
