-- Move the place up to which a subscription has delivered, and renew its lease: only for who has it.
UPDATE interlock.subscriptions
   SET xid = %(xid)s::text::xid8, position = %(position)s, delivered = delivered + %(count)s, attempts = 0, failed_at = NULL, next_at = now(),
       answer = COALESCE(%(answer)s::jsonb, answer),
       answered_at = CASE WHEN %(answer)s::jsonb IS NULL THEN answered_at ELSE now() END,
       lease_until = now() + make_interval(secs => %(seconds)s)
 WHERE subscription_id = %(id)s AND lease = %(lease)s
