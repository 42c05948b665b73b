-- The load of a claim just made, and all that carrying it out takes.
WITH loaded AS (
    UPDATE interlock.workers SET current_load = current_load + 1, last_took_at = now()
     WHERE worker_id = %(worker_id)s
    RETURNING worker_id, name, capabilities, current_load = max_concurrent_tasks AS full
)
SELECT %(claim_id)s::bigint AS claim_id, %(token)s::bigint AS token, t.task_id, t.run_id, t.workstream_id, t.kind, t.timeout_sec, t.retry_count,
       t.required_capabilities, i.entity_id, i.project, i.version, i.context,
       to_jsonb(c) AS command,
       l.worker_id, l.name AS worker, l.capabilities, l.full
  FROM loaded l, interlock.tasks t JOIN interlock.workflow_instances i ON i.id = t.task_id
  LEFT JOIN interlock.commands c ON c.workflow_id = t.task_id
 WHERE t.task_id = %(task_id)s
