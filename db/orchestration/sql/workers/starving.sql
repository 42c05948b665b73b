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
           AND (t.tool = ANY (interlock.shut_tools(r.run_id))) IS NOT TRUE
           AND i.updated_at < now() - make_interval(secs => %(waited_seconds)s)
           AND t.required_capabilities <@ w.capabilities
           AND CASE t.kind WHEN 'agent' THEN 'interlock:agent' ELSE 'interlock:execute' END = ANY (w.capabilities)
           AND (s.affinity = '{}' AND t.affinity = '{}'
                OR CASE t.affinity WHEN '{}' THEN s.affinity ELSE t.affinity END
                    && ARRAY[split_part(w.name, '#', 1), w.worker_type::text])
           AND (interlock.texts(w.affinity->'workstreams') = '{}'
                OR ARRAY[t.workstream_id::text, named.entity_id::text, named.context->>'name']
                    && interlock.texts(w.affinity->'workstreams'))
           AND NOT EXISTS (SELECT FROM interlock.task_claims c
                            WHERE c.task_id = t.task_id AND c.revoked_at IS NULL AND c.ended_at IS NULL)
         LIMIT 1) waiting
 WHERE w.state = 'idle' AND NOT w.draining AND w.current_load < w.max_concurrent_tasks
   AND w.last_heartbeat > now() - make_interval(secs => %(silent_seconds)s)
   AND COALESCE(w.last_took_at, w.created_at) < now() - make_interval(secs => %(waited_seconds)s)
 ORDER BY w.name
 LIMIT %(limit)s
