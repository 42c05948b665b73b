-- What the sweep found stuck last, longest first, and how many there are: without looking for them anew.
SELECT workflow_id, workflow_type, entity_id, project, state, since, reason, count(*) OVER () AS many
  FROM interlock.stuck_entities
 WHERE %(projects)s::text[] IS NULL OR project = ANY (%(projects)s)
 ORDER BY since LIMIT %(limit)s
