-- What operators did by hand, the newest first, the archive's too (EVENT-6): a line for each move.
SELECT transitioned_at, operator, entity_type, entity_id, from_state, to_state, trigger, reason, workflow_id
  FROM interlock.state_transitions
 WHERE operator IS NOT NULL
   AND transitioned_at > now() - make_interval(hours => %(hours)s)
   AND (%(by)s::text IS NULL OR operator = %(by)s)
 ORDER BY transitioned_at DESC, transition_id DESC
 LIMIT %(limit)s
