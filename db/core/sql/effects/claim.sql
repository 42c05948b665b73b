-- Take the lease of an effect that is due, and read what its function is told, in one round trip. The token grows with each lease, so that
-- an older holder can be told apart. While another with the same key is leased, it is not: of two that ask at once the unique index
-- refuses the second. What its limits leave no room for is not leased either (`within_limits`).
WITH claimed AS (
    UPDATE interlock.effects e
       SET status = 'leased', token = token + 1, attempts = attempts + 1, leased_by = %(holder)s,
           lease_until = now() + make_interval(secs => %(lease_seconds)s)
     WHERE id = %(id)s AND status = 'pending' AND not_before <= now()
       AND NOT EXISTS (SELECT FROM interlock.effects o WHERE o.exclusive = e.exclusive AND o.status = 'leased')
    RETURNING *
)
SELECT c.id, c.workflow_id, c.version, c.name, c.queue, c.payload, c.progress, c.done_trigger, c.failed_trigger, c.exclusive,
       EXISTS (SELECT FROM interlock.limits) AS limited, c.token, c.attempts, c.trace, extract(epoch FROM now() - c.created_at)::float8 AS age_seconds,
       i.workflow_type, i.entity_id, i.project, i.definition_version, i.version AS instance_version, t.from_state, t.metadata
  FROM claimed c
  JOIN interlock.workflow_instances i ON i.id = c.workflow_id
  LEFT JOIN interlock.workflow_transitions t ON t.workflow_id = c.workflow_id AND t.seq = c.version  -- none: its creation
