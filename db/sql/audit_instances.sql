-- Every instance as its birth was hashed, in the order in which history is read beside it.
SELECT i.id, i.workflow_type, i.definition_version, i.current_state, i.version, i.entity_id, i.project_id::text,
       i.created_by, interlock.micros(i.created_at)
  FROM interlock.every_instance i
 ORDER BY i.id
