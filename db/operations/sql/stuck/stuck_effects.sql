-- The effects that instances wait for: asked for by the move that brought them here, and not ended.
SELECT e.workflow_id, e.id, e.name, e.status, e.attempts, e.leased_by, e.lease_until, e.lease_until < now() AS lease_over,
       e.not_before, e.not_before > now() AS later, e.error,
       extract(epoch FROM now() - e.not_before)::double precision AS due_seconds, e.failed_trigger, e.limit_key,
       (SELECT h.workflow_type || '/' || h.entity_id
          FROM interlock.effects o JOIN interlock.workflow_instances h ON h.id = o.workflow_id
         WHERE o.exclusive = e.exclusive AND o.status = 'leased' AND o.id <> e.id LIMIT 1) AS behind
  FROM interlock.effects e
  JOIN interlock.workflow_instances i ON i.id = e.workflow_id AND e.version = i.version
 WHERE e.workflow_id = ANY(%(ids)s) AND e.status NOT IN ('done', 'cancelled') AND e.name <> 'notice'  -- nobody waits for a notice
 ORDER BY e.created_at, e.id
