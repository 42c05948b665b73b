-- A job with its name, its project, and how many of the workers it holds are idle.
SELECT j.id, i.entity_id, i.project_id, i.version, j.parent_job_id, j.depth, j.status, j.worker_count, j.task_description,
       j.created_at, j.started_at, j.completed_at,
       (SELECT count(*) FROM interlock.workflow_links l JOIN interlock.supervised_workers w ON w.id = l.target_id
         WHERE l.source_id = j.id AND l.role = 'workers' AND w.status = 'IDLE')::integer AS idle
  FROM interlock.jobs j JOIN interlock.workflow_instances i USING (id)
 WHERE j.id = %(id)s
