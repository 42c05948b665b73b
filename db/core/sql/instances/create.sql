-- New instances; one that exists already, be it in the archive, is left as it is.
INSERT INTO interlock.workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project, context,
                                created_by)
SELECT n.id, n.workflow_type, n.definition_version, n.current_state, n.entity_id, n.project, n.context, n.created_by
  FROM json_to_recordset(%(rows)s::json) AS n (
           id uuid, workflow_type text, definition_version text, current_state text, entity_id text, project text,
           context jsonb, created_by text)
 WHERE (SELECT count(*) FROM interlock.archived_instances a  -- no NOT EXISTS: joining would change the order of the rows
         WHERE (a.project, a.workflow_type, a.entity_id) = (n.project, n.workflow_type, n.entity_id)) = 0
    ON CONFLICT (project, workflow_type, entity_id) DO NOTHING
RETURNING id
