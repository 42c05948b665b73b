-- Take the lease of an effect that is due; the token grows with each lease, so that an older holder can be told apart.
-- While another with the same key is leased, it is not: of two that ask at once the unique index refuses the second.
UPDATE interlock.effects e
   SET status = 'leased', token = token + 1, attempts = attempts + 1, leased_by = %(holder)s,
       lease_until = now() + make_interval(secs => %(lease_seconds)s)
 WHERE id = %(id)s AND status = 'pending' AND not_before <= now()
   AND NOT EXISTS (SELECT FROM interlock.effects o WHERE o.exclusive = e.exclusive AND o.status = 'leased')
RETURNING id, workflow_id, version, name, payload, done_trigger, failed_trigger, exclusive, token, attempts, trace,
       extract(epoch FROM now() - created_at)::float8 AS age_seconds
