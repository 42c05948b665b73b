-- What an archived instance is linked to, in either direction: all of it was archived with it.
SELECT l.role, i.workflow_type, i.entity_id, i.current_state
  FROM (SELECT role, target_id AS other FROM interlock.archived_links WHERE source_id = %(id)s
        UNION ALL
        SELECT inverse, source_id FROM interlock.archived_links WHERE target_id = %(id)s) l
  JOIN interlock.archived_instances i ON i.id = l.other
 ORDER BY i.created_at, i.id
