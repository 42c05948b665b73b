-- A task waits no longer for what is not fulfilled; the links stay, in another role, so that it can be seen.
UPDATE interlock.workflow_links l SET role = 'waived', inverse = 'waived_by'
  FROM interlock.workflow_instances i
 WHERE l.source_id = %(task)s AND l.role IN ('depends_on', 'blocked_by_gates') AND i.id = l.target_id
   AND i.current_state NOT IN ('completed', 'PASSED')
RETURNING i.workflow_type || '/' || i.entity_id || ' (' || i.current_state || ')' AS name
