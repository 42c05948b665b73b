-- Who has stood too long in a state that is no end. Stories and the like rest with people: only the general threshold is
-- theirs. One pass over instances, whose columns that move are in no index; a threshold that is NULL finds nothing.
WITH limits (workflow_type, state, seconds) AS (
    SELECT * FROM jsonb_to_recordset(%(limits)s::jsonb) AS l (workflow_type text, state text, seconds double precision)
), standing AS (
    SELECT i.id
      FROM workflow_instances i
      JOIN definition_states s ON s.type = i.workflow_type AND s.version = i.definition_version
                              AND s.state = i.current_state AND NOT s.terminal
      LEFT JOIN limits l ON l.workflow_type = i.workflow_type AND l.state = i.current_state
     WHERE i.updated_at <= (SELECT now() - make_interval(secs => %(least)s::double precision))
       AND i.updated_at <= now() - make_interval(
               secs => CASE WHEN l.state IS NULL THEN %(general)s::double precision ELSE l.seconds END)
), silent AS (
    SELECT worker_id FROM workers
     WHERE state IN ('idle', 'busy', 'unresponsive')
       AND last_heartbeat < now() - make_interval(secs => %(silent)s::double precision)
), given_up AS (  -- nothing will move these again, however young
    SELECT r.workflow_id, r.finished_at FROM trigger_requests r WHERE r.status = 'dead'
    UNION ALL
    SELECT e.workflow_id, e.finished_at FROM effects e WHERE e.status = 'dead' AND e.name <> 'notice' AND e.failed_trigger IS NULL
)
SELECT i.id, i.workflow_type, i.definition_version, i.current_state, i.version, i.entity_id, i.project_id, i.context,
       i.error, since.at AS since, extract(epoch FROM now() - since.at)::double precision AS seconds
  FROM (SELECT id FROM standing UNION SELECT worker_id FROM silent UNION SELECT workflow_id FROM given_up) found
  JOIN workflow_instances i USING (id)
  JOIN definition_states s ON s.type = i.workflow_type AND s.version = i.definition_version
                          AND s.state = i.current_state AND NOT s.terminal
  LEFT JOIN workflow_transitions t ON t.workflow_id = i.id AND t.seq = i.version
 CROSS JOIN LATERAL (SELECT COALESCE(t.created_at, i.created_at) AS at) since
 WHERE (i.id IN (SELECT id FROM standing) OR i.id IN (SELECT worker_id FROM silent)
        OR i.id IN (SELECT workflow_id FROM given_up g WHERE g.workflow_id = i.id AND g.finished_at >= since.at))
   AND (%(type)s::text IS NULL OR i.workflow_type = %(type)s)
   AND (%(project)s::uuid IS NULL OR i.project_id = %(project)s)
 ORDER BY since.at, i.id
 LIMIT %(limit)s
