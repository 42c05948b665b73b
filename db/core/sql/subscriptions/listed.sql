-- Subscriptions with how far they have got, and with the events that made and last changed each. `behind_seconds`: the age of the oldest
-- event that is not delivered or passed over yet.
SELECT i.id, i.project, i.entity_id AS name, i.current_state AS state, i.version, i.context, i.created_by AS by, i.created_at,
       s.xid::text::bigint AS xid, s.position, s.delivered, s.attempts, s.next_at, s.failed_at, s.answer, s.answered_at,
       s.lease_until > now() AS at_work, changed.trigger AS changed_by_trigger, changed.triggered_by AS changed_by,
       changed.metadata->>'reason' AS reason, changed.created_at AS changed_at,
       COALESCE(extract(epoch FROM now() - ahead.created_at), 0)::double precision AS behind_seconds
  FROM interlock.workflow_instances i
  LEFT JOIN interlock.subscriptions s ON s.subscription_id = i.id
  LEFT JOIN interlock.workflow_transitions changed ON changed.workflow_id = i.id AND changed.seq = i.version
  LEFT JOIN LATERAL (
       SELECT t.created_at FROM interlock.every_transition t WHERE (t.xid, t.position) > (s.xid, s.position)
        ORDER BY t.xid, t.position LIMIT 1) ahead ON true
 WHERE i.workflow_type = 'subscription' AND i.project = COALESCE(%(project)s, i.project) AND i.id = COALESCE(%(id)s, i.id)
   AND (%(removed)s OR i.current_state <> 'removed')
 ORDER BY i.project, i.entity_id
