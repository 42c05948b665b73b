-- Where each scratch instance stands after its last event.
UPDATE interlock.workflow_instances i
   SET current_state = t.to_state, version = t.seq, definition_version = t.definition_version
  FROM (SELECT DISTINCT ON (workflow_id) workflow_id, seq, to_state, definition_version
          FROM interlock.workflow_transitions ORDER BY workflow_id, seq DESC) t
 WHERE t.workflow_id = i.id
