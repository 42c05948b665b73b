-- The older lineage has no tables of its own: retries are counted in history, their limit is in the context, and a
-- workstream's tasks are counted among those that name it.
SELECT i.id AS workflow_id, COALESCE((i.context->>'max_retries')::integer, 3) AS max_retries,
       (SELECT count(*) FROM interlock.workflow_transitions t
         WHERE t.workflow_id = i.id AND t.to_state IN ('retrying', 'S_RETRYING')
           AND t.trigger <> 'definition.migrate')::integer AS retry_count,
       k.total_tasks, k.started_tasks, k.completed_tasks, k.critical_failures
  FROM interlock.workflow_instances i
 CROSS JOIN LATERAL (
        SELECT count(*) AS total_tasks,
               count(*) FILTER (WHERE t.current_state NOT IN ('pending', 'queued', 'cancelled')) AS started_tasks,
               count(*) FILTER (WHERE t.current_state = 'completed') AS completed_tasks,
               count(*) FILTER (WHERE t.current_state = 'failed' AND t.context->'is_critical' = 'true')
                   AS critical_failures
          FROM interlock.workflow_links l JOIN interlock.workflow_instances t ON t.id = l.source_id
         WHERE l.target_id = i.id AND l.inverse = 'tasks') k
 WHERE i.id = ANY(%(ids)s)
