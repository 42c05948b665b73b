-- Link new instances to those their context names: by UUID, or by entity id within the project.
INSERT INTO interlock.workflow_links (source_id, role, inverse, target_id)
SELECT n.source_id, n.role, n.inverse, i.id
  FROM json_to_recordset(%(rows)s::json) AS n (
           source_id uuid, role text, inverse text, project text, type text, target text, target_id uuid)
  CROSS JOIN LATERAL (
        SELECT id FROM interlock.workflow_instances WHERE id = n.target_id AND workflow_type = n.type
        UNION ALL
        SELECT id FROM interlock.workflow_instances
         WHERE n.target_id IS NULL
           AND project = n.project AND workflow_type = n.type AND entity_id = n.target) i
    ON CONFLICT DO NOTHING
RETURNING source_id, role, target_id
