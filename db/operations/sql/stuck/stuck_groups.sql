-- What workstreams and runs wait for: those of their members that have not ended, by state, and the oldest of them.
SELECT w.ws_id AS id, 'task' AS members, ri.entity_id AS run, r.run_id, r.state AS run_state, ri.version AS run_version,
       (SELECT jsonb_object_agg(state, many)
          FROM (SELECT t.state, count(*) AS many FROM interlock.tasks t
                 WHERE t.workstream_id = w.ws_id AND t.completed_at IS NULL
                 GROUP BY t.state) each) AS unended,
       (SELECT jsonb_build_object('id', t.task_id, 'name', i.entity_id, 'state', t.state)
          FROM interlock.tasks t JOIN interlock.workflow_instances i ON i.id = t.task_id
         WHERE t.workstream_id = w.ws_id AND t.completed_at IS NULL
         ORDER BY t.state IN ('pending', 'blocked'), t.state <> 'running', i.updated_at, i.id LIMIT 1) AS first,
       (i.context->>'task_count')::integer - (SELECT count(*) FROM interlock.tasks t WHERE t.workstream_id = w.ws_id) AS missing
  FROM interlock.workstreams w JOIN interlock.workflow_instances i ON i.id = w.ws_id
  JOIN interlock.runs r ON r.run_id = w.run_id JOIN interlock.workflow_instances ri ON ri.id = r.run_id
 WHERE w.ws_id = ANY(%(ids)s)
UNION ALL
SELECT r.run_id, 'workstream', NULL, NULL, NULL, NULL,
       (SELECT jsonb_object_agg(state, many)
          FROM (SELECT w.state, count(*) AS many FROM interlock.workstreams w
                 WHERE w.run_id = r.run_id AND w.completed_at IS NULL
                 GROUP BY w.state) each),
       (SELECT jsonb_build_object('id', w.ws_id, 'name', i.entity_id, 'state', w.state)
          FROM interlock.workstreams w JOIN interlock.workflow_instances i ON i.id = w.ws_id
         WHERE w.run_id = r.run_id AND w.completed_at IS NULL
         ORDER BY w.state IN ('planned', 'blocked'), i.updated_at, i.id LIMIT 1),
       NULL
  FROM interlock.runs r
 WHERE r.run_id = ANY(%(ids)s)
