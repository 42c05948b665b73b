-- What decides about patches, beside their own state. One patch at a time has a workstream's worktree, the oldest first.
SELECT p.ledger_id AS id, i.version, i.entity_id, p.state, p.apply_retries, w.state AS workstream_state,
       g.open AS gates_open, g.lost_gate, p.state_history->-1->>'reason' AS refusal,
       EXISTS (SELECT FROM interlock.patch_ledger_entries o
                WHERE o.workstream_id = p.workstream_id AND o.ledger_id <> p.ledger_id
                  AND (o.state IN ('queued', 'applied', 'apply_failed', 'verified')
                       OR o.state = 'validated' AND o.ledger_id < p.ledger_id)) AS behind
  FROM interlock.patch_ledger_entries p
  JOIN interlock.workflow_instances i ON i.id = p.ledger_id
  JOIN interlock.workstreams w ON w.ws_id = p.workstream_id
  CROSS JOIN LATERAL interlock.gates_of(p.task_id) g
 WHERE p.ledger_id = ANY(%(ids)s)
