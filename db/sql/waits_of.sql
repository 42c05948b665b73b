-- What these tasks are linked to now, with where that stands: {source_id, role, target_id, kind, name, state}.
SELECT l.source_id, l.role, l.target_id, i.workflow_type AS kind, i.entity_id AS name, i.current_state AS state
  FROM interlock.workflow_links l JOIN interlock.workflow_instances i ON i.id = l.target_id
 WHERE l.source_id = ANY(%(ids)s) AND l.role IN ('depends_on', 'gates', 'blocked_by_gates')
 ORDER BY l.source_id, l.role, l.target_id
