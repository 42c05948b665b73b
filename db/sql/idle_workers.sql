-- Idle workers of a project that no job holds which may still need them; the longest idle first.
SELECT w.id
  FROM interlock.supervised_workers w JOIN interlock.workflow_instances i USING (id)
 WHERE w.status = 'IDLE' AND i.project_id = %(project_id)s
   AND NOT EXISTS (SELECT FROM interlock.workflow_links l JOIN interlock.jobs j ON j.id = l.source_id
                    WHERE l.target_id = w.id AND l.role = 'workers' AND j.completed_at IS NULL)
 ORDER BY w.created_at, w.id
 LIMIT %(limit)s
