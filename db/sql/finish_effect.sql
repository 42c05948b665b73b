-- Finish (or give back) an effect, under the lease it was claimed with. A lease that ran out, or that another worker
-- took since, finishes nothing: zero rows.
UPDATE interlock.effects
   SET status = %(status)s::text, lease_until = NULL, leased_by = NULL, error = %(error)s::text, result = %(result)s::jsonb,
       not_before = now() + make_interval(secs => %(delay_seconds)s),
       attempts = attempts - CASE WHEN %(uncounted)s::boolean THEN 1 ELSE 0 END,
       finished_at = CASE WHEN %(status)s::text IN ('done', 'dead') THEN now() END
 WHERE id = %(id)s AND status = 'leased' AND token = %(token)s AND lease_until > now()
