-- A task's retries (SSOT 1.4.4).
SELECT task_id AS workflow_id, retry_count, max_retries FROM tasks WHERE task_id = ANY(%(ids)s)
