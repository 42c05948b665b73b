-- Every instance as it was born, those first that others name.
SELECT i.id, i.workflow_type, born.version, d.initial_state, 0, i.entity_id, i.project, i.context, NULL, 0, i.created_by,
       i.created_at, i.created_at
  FROM interlock.workflow_instances i
  LEFT JOIN interlock.workflow_transitions t ON t.workflow_id = i.id AND t.seq = 1
 CROSS JOIN LATERAL (SELECT COALESCE(CASE t.trigger WHEN 'definition.migrate' THEN t.metadata->>'from_version' END,
                                     t.definition_version, i.definition_version)) AS born (version)
  JOIN interlock.workflow_definitions d ON d.type = i.workflow_type AND d.version = born.version
 ORDER BY array_position(ARRAY['run', 'workstream', 'worker', 'task', 'patch_ledger'], i.workflow_type::text),
          CASE i.workflow_type WHEN 'job' THEN (i.context->>'depth')::integer END, i.id
