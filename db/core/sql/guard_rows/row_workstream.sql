-- A workstream's tasks, counted by the scheduler.
SELECT ws_id AS workflow_id, completed AS completed_tasks, critical_failures,
       completed + failed + cancelled AS ended_tasks,
       running + validating + completed + failed + retrying AS started_tasks,
       pending + queued + running + validating + completed + failed + retrying + cancelled + blocked AS total_tasks,
       (SELECT count(*) FROM interlock.tasks t WHERE t.workstream_id = ws_id AND t.left_out
           AND NOT EXISTS (SELECT FROM interlock.workflow_links l WHERE l.target_id = t.task_id AND l.role = 'retry_of'))
           AS left_out_tasks
  FROM interlock.workstream_counts WHERE ws_id = ANY(%(ids)s)
