-- Paused workers whose job is over: they could not complete with it, and nobody will resume them.
SELECT w.id, i.version
  FROM interlock.supervised_workers w JOIN interlock.workflow_instances i USING (id)
 WHERE w.status = 'PAUSED'
   AND EXISTS (SELECT FROM interlock.workflow_links l JOIN interlock.jobs j ON j.id = l.source_id
                WHERE l.target_id = w.id AND l.role = 'workers' AND j.completed_at IS NOT NULL
                  AND (%(job_id)s::uuid IS NULL OR j.id = %(job_id)s::uuid))
   AND NOT EXISTS (SELECT FROM interlock.trigger_requests r WHERE r.workflow_id = w.id AND r.status = 'pending')  -- told already
 LIMIT %(limit)s
