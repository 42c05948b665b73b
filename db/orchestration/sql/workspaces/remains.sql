-- What a failed or cancelled workstream leaves, for whoever asks why.
SELECT i.entity_id AS workstream, r.entity_id AS run, w.state,
       (SELECT jsonb_build_object('trigger', t.trigger, 'by', t.triggered_by, 'at', t.created_at, 'metadata', t.metadata)
          FROM interlock.workflow_transitions t WHERE t.workflow_id = w.ws_id ORDER BY t.seq DESC LIMIT 1) AS last_event,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object('task', ti.entity_id, 'exit_code', t.exit_code,
                                                     'error', t.last_error) ORDER BY t.completed_at), '[]')
          FROM interlock.tasks t JOIN interlock.workflow_instances ti ON ti.id = t.task_id
         WHERE t.workstream_id = w.ws_id AND t.state = 'failed') AS failed_tasks,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object('ledger', pi.entity_id, 'patch', p.patch_id,
                                                     'reason', p.quarantine_reason) ORDER BY p.quarantined_at), '[]')
          FROM interlock.patch_ledger_entries p JOIN interlock.workflow_instances pi ON pi.id = p.ledger_id
         WHERE p.workstream_id = w.ws_id AND p.state = 'quarantined') AS quarantined_patches,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object('gate', gi.entity_id, 'type', g.gate_type, 'exit_code', g.exit_code,
                                                     'stderr', g.stderr) ORDER BY g.completed_at), '[]')
          FROM interlock.test_gates g JOIN interlock.workflow_instances gi ON gi.id = g.gate_id
         WHERE g.workstream_id = w.ws_id AND g.state = 'FAILED') AS failed_gates
  FROM interlock.workstreams w
  JOIN interlock.workflow_instances i ON i.id = w.ws_id
  JOIN interlock.workflow_instances r ON r.id = w.run_id
 WHERE w.ws_id = %(id)s
