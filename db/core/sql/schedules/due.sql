-- The schedules whose next time has come, with what they fire at. Two sweeps at once take different ones; nobody pauses or ends one
-- until this commits. `submits`: those that submit plans, which take long, or the others. `known`: the definitions of this release. What fires at
-- others is left to another release, and must not stand in the way.
SELECT s.schedule_id, s.settled, s.next_at, now() AS now, i.entity_id AS name, i.project, i.context, i.created_at, i.created_by, i.version, i.born_proof,
       (SELECT interlock.not_by_token(a, i.created_by) FROM interlock.api_tokens a WHERE a.token_id = interlock.token_of(i.born_proof))
           AS token_lacks,
       t.id AS target_id, t.workflow_type AS target_type, t.definition_version AS target_version, t.entity_id AS target_name,
       COALESCE(d.terminal, false) AS target_ended
  FROM interlock.schedules s
  JOIN interlock.workflow_instances i ON i.id = s.schedule_id
  LEFT JOIN interlock.workflow_instances t ON t.id = (i.context->'does'->'fire'->>'instance')::uuid
  LEFT JOIN interlock.definition_states d ON (d.type, d.version, d.state) = (t.workflow_type, t.definition_version, t.current_state)
 WHERE s.next_at <= now() AND COALESCE(i.context->'does' ? 'submit', false) = %(submits)s
   AND (t.id IS NULL OR (t.workflow_type || ' ' || t.definition_version) = ANY (%(known)s))
 ORDER BY s.next_at
 LIMIT %(limit)s
   FOR UPDATE OF s SKIP LOCKED
