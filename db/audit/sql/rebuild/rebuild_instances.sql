-- Every instance as it was born, those first that others name.
SELECT i.id, i.workflow_type, i.born_version, d.initial_state, 0, i.entity_id, i.project, i.context, NULL, 0, i.created_by,
       i.created_at, i.created_at, i.born_version, i.context_sha256, i.bodies, i.born_proof
  FROM interlock.workflow_instances i
  JOIN interlock.workflow_definitions d ON d.type = i.workflow_type AND d.version = i.born_version
 ORDER BY array_position(ARRAY['run', 'workstream', 'worker', 'uet_worker', 'task', 'patch_ledger'], i.workflow_type::text),
          CASE i.workflow_type WHEN 'job' THEN (i.context->>'depth')::integer END, i.id
