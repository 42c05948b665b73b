-- The same of the instances with a name, live and archived, by the indexes on names and on an instance's events.
SELECT t.id, t.workflow_id, t.seq, t.workflow_type, t.from_state, t.to_state, t.trigger, t.triggered_by, t.authority,
       t.severity, t.metadata->>'reason' AS reason, t.created_at, i.entity_id, i.project
  FROM interlock.every_instance i
  JOIN interlock.every_transition t ON t.workflow_id = i.id
 WHERE i.entity_id = %(name)s
   AND t.id < %(before)s AND t.id >= %(since)s
   AND (%(projects)s::text[] IS NULL OR i.project = ANY(%(projects)s))
   AND (%(type)s::text IS NULL OR i.workflow_type = %(type)s)
   AND (%(trigger)s::text IS NULL OR t.trigger = %(trigger)s)
   AND (%(state)s::text IS NULL OR t.to_state = %(state)s)
   AND (%(by)s::text IS NULL OR t.triggered_by = %(by)s)
 ORDER BY t.id DESC LIMIT %(limit)s
