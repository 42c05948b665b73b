-- A run's patches in the ledger.
SELECT p.ledger_id AS id, p.workstream_id, p.task_id, i.entity_id, i.version, p.patch_id, p.state, p.commit_sha,
       p.apply_retries, COALESCE(p.rollback_reason, p.quarantine_reason) AS reason, p.created_at, p.updated_at
  FROM interlock.workstreams w
  JOIN interlock.patch_ledger_entries p ON p.workstream_id = w.ws_id
  JOIN interlock.workflow_instances i ON i.id = p.ledger_id
 WHERE w.run_id = %(run)s AND (%(ids)s::uuid[] IS NULL OR p.ledger_id = ANY(%(ids)s))
 ORDER BY p.ledger_id
