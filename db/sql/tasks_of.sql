-- A workstream's tasks, where each stands, and how long it has run.
SELECT t.task_id, i.entity_id, t.state, k.name AS worker,
       COALESCE(extract(epoch FROM now() - t.started_at), 0)::double precision AS seconds
  FROM interlock.tasks t JOIN interlock.workflow_instances i ON i.id = t.task_id LEFT JOIN interlock.workers k ON k.worker_id = t.worker_id
 WHERE t.workstream_id = %(id)s
 ORDER BY t.created_at, t.task_id
