-- Take the lease of a subscription that is due, unless another worker has it.
UPDATE interlock.subscriptions s
   SET lease = %(lease)s, lease_until = now() + make_interval(secs => %(seconds)s)
  FROM interlock.workflow_instances i
 WHERE s.subscription_id = %(id)s AND i.id = s.subscription_id
   AND s.state = 'active' AND s.next_at <= now() AND (s.lease_until IS NULL OR s.lease_until < now())
RETURNING s.subscription_id, s.lease, i.entity_id AS name, i.project, i.context, s.xid::text::bigint AS xid, s.position, s.attempts
