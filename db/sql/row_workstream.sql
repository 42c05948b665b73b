-- A workstream's tasks, counted by the scheduler.
SELECT ws_id AS workflow_id, completed AS completed_tasks, critical_failures,
       running + validating + completed + failed + retrying AS started_tasks,
       pending + queued + running + validating + completed + failed + retrying + cancelled + blocked AS total_tasks
  FROM workstream_counts WHERE ws_id = ANY(%(ids)s)
