-- Schedules with what they fire at, their newest failure, and the newest requests that they made.
SELECT i.id, i.project, i.entity_id AS name, i.current_state AS state, i.version, i.context, i.created_by AS by, i.created_at,
       s.login, COALESCE(s.settled, i.updated_at) AS settled, s.next_at, s.fired, s.last_due,
       t.workflow_type AS target_type, t.entity_id AS target_name,
       f.metadata->>'reason' AS failure, f.created_at AS failed_at
  FROM interlock.workflow_instances i
  LEFT JOIN interlock.schedules s ON s.schedule_id = i.id
  LEFT JOIN interlock.every_instance t ON t.id = (i.context->'does'->'fire'->>'instance')::uuid
  LEFT JOIN LATERAL (
       SELECT * FROM interlock.workflow_transitions e
        WHERE e.workflow_id = i.id AND e.trigger IN ('firing_failed', 'lapse') ORDER BY e.seq DESC LIMIT 1) f ON true
 WHERE i.workflow_type = 'schedule' AND i.project = COALESCE(%(project)s, i.project) AND i.id = COALESCE(%(id)s, i.id)
   AND (%(ended)s OR i.current_state <> 'ended')
 ORDER BY i.project, i.entity_id
