-- A job and all below it, each after its parent, siblings in the order they were submitted.
WITH RECURSIVE tree AS (
    SELECT j.id, ARRAY[j.id] AS path FROM interlock.jobs j WHERE j.id = %(id)s
    UNION ALL
    SELECT j.id, t.path || j.id FROM interlock.jobs j JOIN tree t ON j.parent_job_id = t.id
)
SELECT j.id, i.entity_id, j.parent_job_id, j.depth, j.status, j.worker_count, j.task_description, j.created_at,
       j.started_at, j.completed_at
  FROM tree t JOIN interlock.jobs j USING (id) JOIN interlock.workflow_instances i USING (id)
 ORDER BY t.path
