-- The workers that the pool processes of one Celery node registered and that are not shut down.
SELECT w.worker_id, w.name, w.state, i.version, (i.context->>'pid')::integer AS pid,
       CASE w.state WHEN 'busy' THEN 'health_check_timeout' WHEN 'suspended' THEN 'resume'
                    ELSE 'max_timeout_exceeded' END AS owed
  FROM interlock.workers w JOIN interlock.workflow_instances i ON i.id = w.worker_id
 WHERE i.context->>'node' = %(node)s AND w.state <> 'shutdown'
   FOR NO KEY UPDATE OF w SKIP LOCKED
