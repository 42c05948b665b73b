-- Instances that have ended and are old, a page of them; members of a run come along with it and are not asked for.
SELECT i.id
  FROM interlock.workflow_instances i
  JOIN interlock.definition_states s ON s.type = i.workflow_type AND s.version = i.definition_version
                          AND s.state = i.current_state AND s.terminal
 WHERE i.id > COALESCE(%(after)s::uuid, '00000000-0000-0000-0000-000000000000')
   AND i.updated_at <= now() - %(older_than)s::interval
   AND i.workflow_type NOT IN ('operator_grant', 'deprecation', 'api_token')  -- what gave power stays
   AND NOT (i.workflow_type IN ('workstream', 'task', 'patch_ledger') AND i.definition_version NOT LIKE '0.%%')
   AND NOT (i.workflow_type = 'test_gate' AND EXISTS (SELECT FROM interlock.test_gates g WHERE g.gate_id = i.id AND g.workstream_id IS NOT NULL))
 ORDER BY i.id
 LIMIT %(limit)s
