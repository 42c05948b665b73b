-- Of these gates, those that have nothing left to judge: nobody waits for them any more.
UPDATE interlock.workflow_links l SET role = 'waived', inverse = 'waived_by'
  FROM interlock.test_gates g JOIN interlock.workflow_instances i ON i.id = g.gate_id
 WHERE g.gate_id = ANY(%(gates)s) AND g.moment = 'task' AND g.state IN ('PENDING', 'BLOCKED')
   AND l.target_id = g.gate_id AND l.role IN ('depends_on', 'blocked_by_gates', 'gates')
   AND NOT EXISTS (SELECT FROM interlock.workflow_links j WHERE j.target_id = g.gate_id AND j.role = 'gates')
RETURNING i.entity_id AS name
