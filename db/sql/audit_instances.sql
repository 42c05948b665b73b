-- Every instance as its birth was hashed, in the order in which history is read beside it.
SELECT i.id, i.workflow_type, i.definition_version, i.current_state, i.version,
       i.id::text AS f1, i.workflow_type AS f2, i.entity_id AS f3, i.project_id::text AS f4, i.created_by AS f5,
       interlock_micros(i.created_at) AS f6
  FROM workflow_instances i
 ORDER BY i.id
