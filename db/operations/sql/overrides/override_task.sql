-- A task as an operator has to see it: where it stands, who had it last, and what of it is on its way.
SELECT t.task_id, t.workstream_id, t.run_id, t.state, t.unmet, t.dead, t.retry_count, t.left_out,
       w.state AS workstream_state, wi.entity_id AS workstream, r.state AS run_state, ri.entity_id AS run,
       (SELECT c.worker_id FROM interlock.task_claims c WHERE c.task_id = t.task_id ORDER BY c.claim_id DESC LIMIT 1) AS last_worker,
       (SELECT i.entity_id FROM interlock.patch_ledger_entries p JOIN interlock.workflow_instances i ON i.id = p.ledger_id
         WHERE p.workstream_id = t.workstream_id AND p.task_id = t.task_id
           AND p.state NOT IN ('committed', 'quarantined', 'dropped', 'rolled_back') LIMIT 1) AS open_patch,
       (SELECT i.entity_id FROM interlock.workflow_links l JOIN interlock.workflow_instances i ON i.id = l.source_id
         WHERE l.target_id = t.task_id AND l.role = 'retry_of' LIMIT 1) AS retried_by
  FROM interlock.tasks t
  JOIN interlock.workstreams w ON w.ws_id = t.workstream_id
  JOIN interlock.workflow_instances wi ON wi.id = w.ws_id
  JOIN interlock.runs r ON r.run_id = t.run_id
  JOIN interlock.workflow_instances ri ON ri.id = r.run_id
 WHERE t.task_id = %(id)s
