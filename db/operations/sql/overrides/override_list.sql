-- What operators did by hand, the newest first, the archive's too (EVENT-6): a line for each move.
SELECT s.transitioned_at, s.operator, COALESCE(i.project, a.project) AS project, s.entity_type, s.entity_id, s.from_state,
       s.to_state, s.trigger, s.reason, s.workflow_id
  FROM interlock.state_transitions s
  LEFT JOIN interlock.workflow_instances i ON i.id = s.workflow_id
  LEFT JOIN interlock.archived_instances a ON a.id = s.workflow_id
 WHERE operator IS NOT NULL
   AND transitioned_at > now() - make_interval(hours => %(hours)s)
   AND (%(by)s::text IS NULL OR operator = %(by)s)
   AND (%(project)s::text IS NULL OR %(project)s IN (i.project, a.project))
 ORDER BY transitioned_at DESC, transition_id DESC
 LIMIT %(limit)s
