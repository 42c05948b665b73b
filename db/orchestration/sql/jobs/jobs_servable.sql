-- Pending jobs whose project has as many idle workers as they ask for, oldest first; which of them get these is decided
-- by `reserve`, one job after another.
WITH idle AS (
    SELECT i.project, count(*) AS workers
      FROM interlock.supervised_workers w JOIN interlock.workflow_instances i USING (id)
     WHERE w.status = 'IDLE' GROUP BY i.project
)
SELECT j.id, i.version
  FROM interlock.jobs j JOIN interlock.workflow_instances i USING (id) JOIN idle USING (project)
 WHERE j.status = 'PENDING' AND j.worker_count <= idle.workers
   AND NOT EXISTS (SELECT FROM interlock.trigger_requests r WHERE r.workflow_id = j.id AND r.status = 'pending')  -- asked already
 ORDER BY j.created_at, j.id
 LIMIT %(limit)s
