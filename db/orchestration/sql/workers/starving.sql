-- Workers that are alive and have room, yet leave a fitting task waiting: they answer but do not consume.
SELECT w.name, w.last_took_at, waiting.entity_id AS task, waiting.seconds
  FROM interlock.workers w
 CROSS JOIN LATERAL (
        SELECT i.entity_id, extract(epoch FROM now() - i.updated_at)::double precision AS seconds
          FROM interlock.runs r JOIN interlock.tasks t ON t.run_id = r.run_id AND t.state = 'queued'
               JOIN interlock.workflow_instances i ON i.id = t.task_id
               JOIN interlock.workstreams s ON s.ws_id = t.workstream_id
               JOIN interlock.workflow_instances named ON named.id = s.ws_id
         WHERE r.state = 'running' AND s.state IN ('ready', 'executing')
           AND (SELECT p.current_state = 'open' FROM interlock.workflow_instances p WHERE p.id = s.phase) IS NOT FALSE
           AND interlock.held_back(interlock.held_back_in(r.run_id), 'task', t.tool, t.limit_key) IS NOT TRUE
           AND i.updated_at < now() - make_interval(secs => %(waited_seconds)s)
           AND COALESCE(w.project, named.project) = named.project
           AND interlock.required_by(t) <@ w.capabilities
           AND interlock.affinities_fit(w, t, s, named)
           AND NOT EXISTS (SELECT FROM interlock.task_claims c
                            WHERE c.task_id = t.task_id AND c.revoked_at IS NULL AND c.ended_at IS NULL)
         LIMIT 1) waiting
 WHERE w.state IN ('idle', 'IDLE') AND NOT w.draining AND w.current_load < w.max_concurrent_tasks
   AND w.last_heartbeat > now() - make_interval(secs => %(silent_seconds)s)
   AND COALESCE(w.last_took_at, w.created_at) < now() - make_interval(secs => %(waited_seconds)s)
 ORDER BY w.name
 LIMIT %(limit)s
