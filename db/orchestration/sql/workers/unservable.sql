-- Tasks that wait for a worker nobody is: everyone who is registered and not shut down lacks something they require, or
-- is kept away by affinity. Those that wait for the same are one row; `lacking` is what nobody at all offers.
WITH waiting AS MATERIALIZED (
    SELECT t.workstream_id, interlock.required_by(t) AS required,
           CASE t.affinity WHEN '{}' THEN s.affinity ELSE t.affinity END AS affinity,
           (array_agg(i.entity_id ORDER BY i.updated_at, t.task_id))[1] AS task,
           (array_agg(t.task_id ORDER BY i.updated_at, t.task_id))[1] AS task_id, count(*) AS tasks,
           extract(epoch FROM now() - min(i.updated_at))::double precision AS seconds
      FROM interlock.runs r JOIN interlock.tasks t ON t.run_id = r.run_id AND t.state = 'queued'
           JOIN interlock.workflow_instances i ON i.id = t.task_id
           JOIN interlock.workstreams s ON s.ws_id = t.workstream_id
     WHERE r.state = 'running' AND s.state IN ('ready', 'executing')
       AND (SELECT p.current_state = 'open' FROM interlock.workflow_instances p WHERE p.id = s.phase) IS NOT FALSE
       AND i.updated_at < now() - make_interval(secs => %(waited_seconds)s)
     GROUP BY 1, 2, 3
), alive AS MATERIALIZED (
    SELECT DISTINCT project, capabilities, ARRAY[split_part(name, '#', 1), worker_type::text] AS called,
           interlock.texts(affinity->'workstreams') AS drawn_to, interlock.texts(affinity->'phases') AS phases
      FROM interlock.workers
     WHERE shutdown_at IS NULL AND NOT draining
)
SELECT w.task, w.task_id, w.tasks, w.seconds,
       ARRAY(SELECT DISTINCT each FROM unnest(w.required) AS each
              WHERE NOT EXISTS (SELECT FROM alive a WHERE each = ANY (a.capabilities)
                                                      AND COALESCE(a.project, named.project) = named.project) ORDER BY each) AS lacking
  FROM waiting w
  JOIN interlock.workstreams s ON s.ws_id = w.workstream_id
  JOIN interlock.workflow_instances named ON named.id = s.ws_id
 WHERE NOT EXISTS (
       SELECT FROM alive a
        WHERE w.required <@ a.capabilities
          AND COALESCE(a.project, named.project) = named.project
          AND (w.affinity = '{}' OR w.affinity && a.called)
          AND (a.phases = '{}' OR s.phase_id = ANY (a.phases))
          AND (a.drawn_to = '{}'
               OR ARRAY[s.ws_id::text, named.entity_id::text, named.context->>'name'] && a.drawn_to))
 ORDER BY w.seconds DESC
 LIMIT %(limit)s
