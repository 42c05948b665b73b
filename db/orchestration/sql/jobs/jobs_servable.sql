-- Pending jobs whose project has as many idle workers as they ask for and whose limits have room, oldest first; which of them
-- get these is decided by `reserve`, one job after another.
WITH idle AS (
    SELECT i.project, count(*) AS workers
      FROM interlock.supervised_workers w JOIN interlock.workflow_instances i USING (id)
     WHERE w.status = 'IDLE' GROUP BY i.project
), spent AS (
    SELECT f.project, f.named FROM interlock.full_limits() f WHERE EXISTS (SELECT FROM interlock.limits)
)
SELECT j.id, i.version
  FROM interlock.jobs j JOIN interlock.workflow_instances i USING (id) JOIN idle USING (project) LEFT JOIN spent s USING (project)
 WHERE j.status = 'PENDING' AND j.worker_count <= idle.workers
   AND NOT (s.named IS NOT NULL AND interlock.held_back(s.named, i.workflow_type, i.context->>'tool', NULL))
   AND NOT EXISTS (SELECT FROM interlock.trigger_requests r WHERE r.workflow_id = j.id AND r.status = 'pending')  -- asked already
 ORDER BY j.created_at, j.id
 LIMIT %(limit)s
