-- A task's retries (TASK-5).
SELECT task_id AS workflow_id, retry_count, max_retries FROM interlock.tasks WHERE task_id = ANY(%(ids)s)
