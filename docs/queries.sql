-- Queries that people ask of such machines, ready to run on Interlock's tables and
-- views, archived entities included where history is read.
-- PostgreSQL refuses a state that is written by hand (`UPDATE … SET state`); use `interlock override`, which history records.

-- name: stuck_workstreams (RECOVER-3)
SELECT ws_id, state, updated_at,
       ROUND(EXTRACT(EPOCH FROM now() - updated_at) / 3600, 2) AS hours_stuck
FROM interlock.workstreams
WHERE state = 'executing'
  AND updated_at < now() - INTERVAL '1 hour'
ORDER BY updated_at;

-- name: stuck_tasks (RECOVER-3)
SELECT task_id, worker_id, state, started_at,
       ROUND(EXTRACT(EPOCH FROM now() - started_at) / 60, 2) AS minutes_running
FROM interlock.tasks
WHERE state = 'running'
  AND started_at < now() - INTERVAL '30 minutes'
ORDER BY started_at;

-- name: unresponsive_workers (RECOVER-3)
SELECT worker_id, state, last_heartbeat,
       ROUND(EXTRACT(EPOCH FROM now() - last_heartbeat) / 60, 2) AS minutes_since_heartbeat
FROM interlock.workers
WHERE state IN ('idle', 'busy', 'IDLE', 'BUSY', 'DRAINING')
  AND last_heartbeat < now() - INTERVAL '2 minutes'
ORDER BY last_heartbeat;

-- name: quarantined_patches (PATCH-4)
SELECT ledger_id, patch_id, quarantine_reason, quarantined_at
FROM interlock.patch_ledger_entries
WHERE state = 'quarantined'
ORDER BY quarantined_at DESC;

-- name: patch_standing (PATCH-15)
SELECT state, updated_at FROM interlock.patch_ledger_entries WHERE ledger_id = 'LEDGER_ID';

-- name: named_events (EVENT-17)
SELECT "timestamp", named_event, entity_id, reason, severity
FROM interlock.events
WHERE named_event IS NOT NULL
  AND "timestamp" > now() - INTERVAL '1 day'
ORDER BY "timestamp";

-- name: tasks_of_gate (GATE-6)
SELECT task_id
FROM interlock.tasks
WHERE gate_dependencies @> ARRAY['GATE_ID'::uuid];

-- name: transition_history (EVENT-15)
SELECT
    from_state,
    to_state,
    trigger,
    transitioned_at,
    metadata->>'duration_seconds' AS duration_sec
FROM interlock.state_transitions
WHERE entity_type = 'workstream'
  AND entity_id = 'WS-001'
ORDER BY transitioned_at;

-- name: failure_patterns (EVENT-15)
SELECT
    entity_type,
    from_state,
    to_state,
    COUNT(*) AS failure_count
FROM interlock.state_transitions
WHERE to_state IN ('failed', 'quarantined', 'abandoned')
GROUP BY entity_type, from_state, to_state
ORDER BY failure_count DESC
LIMIT 10;

-- name: manual_overrides (EVENT-15)
SELECT
    entity_type,
    entity_id,
    from_state,
    to_state,
    operator,
    reason,
    transitioned_at
FROM interlock.state_transitions
WHERE operator IS NOT NULL
  AND transitioned_at > now() - INTERVAL '1 day'
ORDER BY transitioned_at DESC;

-- name: tasks_of_workstream (RECOVER-11)
SELECT task_id, state, started_at, worker_id
FROM interlock.tasks
WHERE workstream_id = 'WS_ID'
ORDER BY created_at;

-- name: stuck_tasks_of_workstream (RECOVER-11)
SELECT task_id
FROM interlock.tasks
WHERE workstream_id = 'WS_ID'
  AND state = 'running'
  AND started_at < now() - INTERVAL '30 minutes';

-- name: unfinished_tasks_of_workstream (RECOVER-11)
SELECT COUNT(*)
FROM interlock.tasks
WHERE workstream_id = 'WS_ID'
  AND state NOT IN ('completed', 'failed', 'cancelled');

-- name: patch_state (RECOVER-12)
SELECT state FROM interlock.patch_ledger_entries WHERE ledger_id = 'LEDGER_ID';

-- name: patch_commit (RECOVER-12)
SELECT commit_sha
FROM interlock.patch_ledger_entries
WHERE ledger_id = 'LEDGER_ID';

-- name: lineage_state (LEGACY-7)
SELECT state FROM interlock.lineage_workstreams WHERE ws_id = 'WS-001';

-- name: lineage_stuck_workstreams (LEGACY-10)
SELECT * FROM interlock.lineage_workstreams WHERE state = 'S_RUNNING' AND updated_at < now() - INTERVAL '1 hour';

-- name: lineage_step_states (LEGACY-10)
SELECT step_id, state, updated_at
FROM interlock.lineage_steps
WHERE ws_id = 'WS-001'
ORDER BY step_id;

-- name: lineage_inconsistent (LEGACY-8)
SELECT w.ws_id, w.state AS ws_state, s.step_id, s.state AS step_state
FROM interlock.lineage_workstreams w
JOIN interlock.lineage_steps s ON w.ws_id = s.ws_id
WHERE w.state = 'S_SUCCESS'
  AND s.state != 'S_SUCCESS';

-- name: lineage_history (LEGACY-7)
SELECT
    from_state,
    to_state,
    transitioned_at,
    metadata->>'reason' AS reason
FROM interlock.lineage_state_transitions
WHERE ws_id = 'WS-001'
ORDER BY transitioned_at;
