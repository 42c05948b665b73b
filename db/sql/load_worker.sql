-- The load of a claim just made, and all that carrying it out takes.
WITH loaded AS (
    UPDATE workers SET current_load = current_load + 1, last_took_at = now()
     WHERE worker_id = %(worker_id)s
    RETURNING worker_id, name, capabilities, current_load = max_concurrent_tasks AS full
)
SELECT %(token)s::bigint AS token, t.task_id, t.run_id, t.workstream_id, t.kind, t.timeout_sec, t.retry_count,
       t.required_capabilities, i.entity_id, i.project_id, i.version, i.context,
       l.worker_id, l.name AS worker, l.capabilities, l.full
  FROM loaded l, tasks t JOIN workflow_instances i ON i.id = t.task_id
 WHERE t.task_id = %(task_id)s
