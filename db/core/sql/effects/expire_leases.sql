-- Leases that ran out, or whose holders have died: back to pending, or dead once the attempts are used up.
WITH expired AS (
    SELECT id, lease_until <= now() AS ran_out,
           attempts >= COALESCE((%(own_attempts)s::jsonb ->> name)::integer, %(max_attempts)s) AS used_up
      FROM interlock.effects
     WHERE status = 'leased' AND (lease_until <= now() OR leased_by = ANY(%(gone)s::text[]))
     ORDER BY lease_until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE interlock.effects e
   SET status = CASE WHEN x.used_up THEN 'dead' ELSE 'pending' END,
       lease_until = NULL, leased_by = NULL,
       error = CASE WHEN x.ran_out THEN 'lease expired: its worker went silent' ELSE 'its worker was killed' END,
       finished_at = CASE WHEN x.used_up THEN now() END
  FROM expired x
 WHERE e.id = x.id
RETURNING e.id, e.workflow_id, e.version, e.name, e.queue, e.status, e.token, e.failed_trigger, e.error, e.trace,
          (SELECT i.workflow_type || '/' || i.entity_id FROM interlock.workflow_instances i WHERE i.id = e.workflow_id) AS entity
