-- The seeds' own queries, changed in dialect only: DATETIME and JULIANDAY, JSON_EXTRACT. They run on Interlock's tables and
-- views, archived entities included where history is read. Those of seed 000 need `SET search_path = lineage, public`.
-- What the seeds write by hand (`UPDATE … SET state`) PostgreSQL refuses: `interlock override` does it, and history says so.

-- name: stuck_workstreams (SSOT 5.1.1)
SELECT ws_id, state, updated_at,
       ROUND(EXTRACT(EPOCH FROM now() - updated_at) / 3600, 2) AS hours_stuck
FROM workstreams
WHERE state = 'executing'
  AND updated_at < now() - INTERVAL '1 hour'
ORDER BY updated_at;

-- name: stuck_tasks (SSOT 5.1.1)
SELECT task_id, worker_id, state, started_at,
       ROUND(EXTRACT(EPOCH FROM now() - started_at) / 60, 2) AS minutes_running
FROM tasks
WHERE state = 'running'
  AND started_at < now() - INTERVAL '30 minutes'
ORDER BY started_at;

-- name: unresponsive_workers (SSOT 5.1.1)
SELECT worker_id, state, last_heartbeat,
       ROUND(EXTRACT(EPOCH FROM now() - last_heartbeat) / 60, 2) AS minutes_since_heartbeat
FROM workers
WHERE state IN ('idle', 'busy')
  AND last_heartbeat < now() - INTERVAL '2 minutes'
ORDER BY last_heartbeat;

-- name: quarantined_patches (SSOT 2.5.1)
SELECT ledger_id, patch_id, quarantine_reason, quarantined_at
FROM patch_ledger_entries
WHERE state = 'quarantined'
ORDER BY quarantined_at DESC;

-- name: patch_standing (SSOT 2.2.8)
SELECT state, updated_at FROM patch_ledger_entries WHERE ledger_id = 'LEDGER_ID';

-- name: tasks_of_gate (SSOT 2.3.6)
SELECT task_id
FROM tasks
WHERE gate_dependencies @> ARRAY['GATE_ID'::uuid];

-- name: transition_history (SSOT 7.3.2)
SELECT
    from_state,
    to_state,
    trigger,
    transitioned_at,
    metadata->>'duration_seconds' AS duration_sec
FROM state_transitions
WHERE entity_type = 'workstream'
  AND entity_id = 'WS-001'
ORDER BY transitioned_at;

-- name: failure_patterns (SSOT 7.3.2)
SELECT
    entity_type,
    from_state,
    to_state,
    COUNT(*) AS failure_count
FROM state_transitions
WHERE to_state IN ('failed', 'quarantined', 'abandoned')
GROUP BY entity_type, from_state, to_state
ORDER BY failure_count DESC
LIMIT 10;

-- name: manual_overrides (SSOT 7.3.2)
SELECT
    entity_type,
    entity_id,
    from_state,
    to_state,
    operator,
    reason,
    transitioned_at
FROM state_transitions
WHERE operator IS NOT NULL
  AND transitioned_at > now() - INTERVAL '1 day'
ORDER BY transitioned_at DESC;

-- name: tasks_of_workstream (SSOT 5.3.1, step 1)
SELECT task_id, state, started_at, worker_id
FROM tasks
WHERE workstream_id = 'WS_ID'
ORDER BY created_at;

-- name: stuck_tasks_of_workstream (SSOT 5.3.1, step 2)
SELECT task_id
FROM tasks
WHERE workstream_id = 'WS_ID'
  AND state = 'running'
  AND started_at < now() - INTERVAL '30 minutes';

-- name: unfinished_tasks_of_workstream (SSOT 5.3.1, step 4)
SELECT COUNT(*)
FROM tasks
WHERE workstream_id = 'WS_ID'
  AND state NOT IN ('completed', 'failed', 'cancelled');

-- name: patch_state (SSOT 5.3.2, step 1)
SELECT state FROM patch_ledger_entries WHERE ledger_id = 'LEDGER_ID';

-- name: patch_commit (SSOT 5.3.2, step 2; `commit_sha` is a column of its own)
SELECT commit_sha
FROM patch_ledger_entries
WHERE ledger_id = 'LEDGER_ID';

-- name: lineage_state (seed 000, its state machine's code)
SELECT state FROM workstreams WHERE ws_id = 'WS-001';

-- name: lineage_stuck_workstreams (seed 000, recovery 1)
SELECT * FROM workstreams WHERE state = 'S_RUNNING' AND updated_at < now() - INTERVAL '1 hour';

-- name: lineage_step_states (seed 000, recovery 1)
SELECT step_id, state, updated_at
FROM steps
WHERE ws_id = 'WS-001'
ORDER BY step_id;

-- name: lineage_inconsistent (seed 000, recovery 4)
SELECT w.ws_id, w.state AS ws_state, s.step_id, s.state AS step_state
FROM workstreams w
JOIN steps s ON w.ws_id = s.ws_id
WHERE w.state = 'S_SUCCESS'
  AND s.state != 'S_SUCCESS';

-- name: lineage_history (seed 000, audit trail)
SELECT
    from_state,
    to_state,
    transitioned_at,
    metadata->>'reason' AS reason
FROM state_transitions
WHERE ws_id = 'WS-001'
ORDER BY transitioned_at;
