-- A workstream's tasks, counted by the scheduler. A task that started may have been cancelled, or be queued again, before its
-- workstream takes note.
SELECT ws_id AS workflow_id, completed AS completed_tasks, critical_failures,
       completed + failed + cancelled AS ended_tasks,
       CASE running + validating + completed + failed + retrying
            WHEN 0 THEN EXISTS (SELECT FROM interlock.tasks t WHERE t.workstream_id = ws_id AND t.started_at IS NOT NULL)::integer
            ELSE running + validating + completed + failed + retrying END AS started_tasks,
       pending + queued + running + validating + completed + failed + retrying + cancelled + blocked AS total_tasks,
       (SELECT count(*) FROM interlock.tasks t WHERE t.workstream_id = ws_id AND t.left_out
           AND NOT EXISTS (SELECT FROM interlock.workflow_links l WHERE l.target_id = t.task_id AND l.role = 'retry_of'))
           AS left_out_tasks,
       (SELECT interlock.landing_approval(w) FROM interlock.workstreams w WHERE w.ws_id = c.ws_id) AS landing_approval,
       (SELECT p.current_state <> 'open' FROM interlock.workstreams w JOIN interlock.workflow_instances p ON p.id = w.phase
         WHERE w.ws_id = c.ws_id) IS TRUE AS frozen
  FROM interlock.workstream_counts c WHERE ws_id = ANY(%(ids)s)
