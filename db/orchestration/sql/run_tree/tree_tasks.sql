-- A run's tasks: where each stands, who has it, what went wrong last, and the end of what a failed one printed.
SELECT t.task_id AS id, t.workstream_id, i.context->>'name' AS name, i.entity_id, i.version,
       i.context->>'title' AS title, t.kind, t.state, t.is_critical, k.name AS worker, t.retry_count, t.max_retries, t.left_out,
       t.exit_code, t.last_error, e.reason, e.output, t.created_at, t.started_at, t.completed_at
  FROM interlock.workstreams w
  JOIN interlock.tasks t ON t.workstream_id = w.ws_id
  JOIN interlock.workflow_instances i ON i.id = t.task_id
  LEFT JOIN interlock.workers k ON k.worker_id = t.worker_id
  LEFT JOIN LATERAL (SELECT CASE WHEN t.state <> 'failed' THEN e.metadata->>'reason' END AS reason,
                            CASE t.state WHEN 'failed' THEN
                                right(concat_ws(E'\n', e.metadata->>'stdout', e.metadata->>'stderr'), 2000) END AS output
                       FROM interlock.workflow_transitions e
                      WHERE t.state IN ('blocked', 'cancelled', 'failed') AND e.workflow_id = t.task_id
                        AND e.seq = i.version) e
            ON true
 WHERE w.run_id = %(run)s AND (%(ids)s::uuid[] IS NULL OR t.task_id = ANY(%(ids)s))
 ORDER BY t.task_id
