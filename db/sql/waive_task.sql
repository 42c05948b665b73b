-- Nobody waits for a task any more, and no gate judges it that has not passed.
UPDATE interlock.workflow_links l SET role = 'waived', inverse = 'waived_by'
  FROM interlock.workflow_instances o
 WHERE (%(waited)s AND l.target_id = %(task)s AND l.role = 'depends_on' AND o.id = l.source_id
        OR l.source_id = %(task)s AND l.role = 'gates' AND o.id = l.target_id AND o.current_state <> 'PASSED')
RETURNING o.id, o.workflow_type || '/' || o.entity_id AS name, o.current_state AS state,
          l.target_id = %(task)s AS waited
