-- What is due in a lane, oldest first, each with the instance it is meant for.
-- The caller holds the lane's advisory lock, taken in a statement of its own: this statement's snapshot is therefore
-- newer than the last commit in the lane, and nobody else decides for these instances before we commit.
-- NO KEY: accepting a trigger, or following up, on an instance (a foreign key to it) does not wait for this round.
-- A request in retry stands in the way of those behind it on the same instance.
SELECT r.seq, r.request_id, r.trigger, r.triggered_by, r.metadata, r.origin, r.bound_version, r.attempts, r.granted,
       i.id AS workflow_id, i.workflow_type, i.definition_version, i.current_state, i.version, i.context,
       i.project_id, i.entity_id
  FROM (SELECT *
          FROM trigger_requests p
         WHERE p.status = 'pending' AND p.lane = %(lane)s
           AND (%(only)s::uuid IS NULL OR p.workflow_id = %(only)s::uuid)
           AND NOT EXISTS (SELECT FROM trigger_requests b
                            WHERE b.workflow_id = p.workflow_id AND b.status = 'scheduled' AND b.attempts > 0
                              AND b.seq < p.seq)
         ORDER BY p.seq
         LIMIT %(limit)s) r
  JOIN workflow_instances i ON i.id = r.workflow_id
 ORDER BY r.seq
   FOR NO KEY UPDATE OF i
