-- A worker lets go of a task: its claim ends and its load falls, revoked or not. The caller has locked both rows, so what
-- is read beside them here is as new as the lock. `was_full`: its machine is, or is about to be, busy.
WITH ended AS (
    UPDATE interlock.task_claims SET ended_at = now() WHERE token = %(token)s AND ended_at IS NULL
    RETURNING claim_id, token, task_id, worker_id, revoked_at IS NOT NULL AS revoked
), eased AS (
    UPDATE interlock.workers w SET current_load = GREATEST(w.current_load - 1, 0)
      FROM ended e WHERE w.worker_id = e.worker_id
    RETURNING w.worker_id, w.name, w.state, w.current_load, w.max_concurrent_tasks, w.draining, w.drained_by, w.drain_reason
)
SELECT e.claim_id, e.token, e.task_id, e.revoked, e.worker_id, i.current_state, i.version, i.entity_id, w.name AS worker,
       w.current_load = w.max_concurrent_tasks - 1
           AND (w.state = 'busy' OR w.state = 'idle' AND EXISTS (
                    SELECT FROM interlock.trigger_requests r
                     WHERE r.status = 'pending' AND r.partition = get_byte(uuid_send(w.worker_id), 15) %% 16
                       AND r.workflow_id = w.worker_id AND r.trigger = 'task_assigned')) AS was_full,
       w.draining AND w.current_load = 0 AS drained, w.drained_by, w.drain_reason
  FROM ended e JOIN eased w USING (worker_id) JOIN interlock.workflow_instances i ON i.id = e.task_id
