-- Keep why an endpoint took nothing, and give the lease back: nobody tries before the wait is over.
UPDATE interlock.subscriptions
   SET attempts = attempts + 1, failed_at = COALESCE(failed_at, now()), next_at = now() + make_interval(secs => %(wait)s),
       answer = %(answer)s::jsonb, answered_at = now(), lease = NULL, lease_until = NULL
 WHERE subscription_id = %(id)s AND lease = %(lease)s
