-- Leases that ran out: back to pending, or dead once the attempts are used up.
WITH expired AS (
    SELECT id FROM interlock.effects WHERE status = 'leased' AND lease_until <= now()
     ORDER BY lease_until LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE interlock.effects e
   SET status = CASE WHEN e.attempts >= %(max_attempts)s THEN 'dead' ELSE 'pending' END,
       lease_until = NULL, leased_by = NULL, error = 'lease expired: its worker went silent',
       finished_at = CASE WHEN e.attempts >= %(max_attempts)s THEN now() END
  FROM expired x
 WHERE e.id = x.id
RETURNING e.id, e.workflow_id, e.version, e.name, e.status, e.token, e.failed_trigger, e.error, e.trace
