-- The instances linked to some, in either direction, with the state each stands in now.
SELECT l.one AS workflow_id, l.role, i.id, i.workflow_type, i.entity_id, i.current_state
  FROM (SELECT source_id AS one, role, target_id AS other FROM interlock.workflow_links
        UNION ALL
        SELECT target_id, inverse, source_id FROM interlock.workflow_links) l
  JOIN interlock.workflow_instances i ON i.id = l.other
 WHERE l.one = ANY(%(ids)s)
 ORDER BY i.created_at, i.id
