-- What a worker holds, with all that carrying it out takes: one claim, or (NULL) every one, the oldest first.
SELECT c.claim_id, c.token, t.task_id, t.run_id, t.workstream_id, t.kind, t.timeout_sec, t.retry_count,
       t.required_capabilities, i.entity_id, i.project, i.version, i.context,
       to_jsonb(command) AS command,
       s.state AS workstream_state, w.worker_id, w.name AS worker, w.capabilities, w.current_load = w.max_concurrent_tasks AS full
  FROM interlock.task_claims c
  JOIN interlock.workers w USING (worker_id)
  JOIN interlock.tasks t USING (task_id)
  JOIN interlock.workstreams s ON s.ws_id = t.workstream_id
  JOIN interlock.workflow_instances i ON i.id = t.task_id
  LEFT JOIN interlock.commands command ON command.workflow_id = t.task_id
 WHERE c.worker_id = %(worker_id)s AND c.claim_id = COALESCE(%(claim_id)s::bigint, c.claim_id)
   AND c.ended_at IS NULL AND c.revoked_at IS NULL
 ORDER BY c.claim_id
