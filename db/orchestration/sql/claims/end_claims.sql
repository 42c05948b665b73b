-- Claims end, revoked or not, and their workers' loads fall (`claim_weighs`). The caller has locked workers and claims, so what is
-- read beside them here is as new as the locks, and the loads are those from before. What follows for a worker is on one of its
-- rows: `was_full`: its machine is, or is about to be, busy; `drained`: it is to leave, and holds nothing more. A `uet_worker` that
-- is to leave is DRAINING: there, `task_completed` ends it.
WITH open AS (
    SELECT claim_id, revoked_at IS NOT NULL AS revoked FROM interlock.task_claims
     WHERE claim_id = ANY (%(ids)s) AND ended_at IS NULL
), ended AS (
    UPDATE interlock.task_claims c
       SET ended_at = now(), revoked_at = CASE WHEN %(taken)s THEN COALESCE(c.revoked_at, now()) ELSE c.revoked_at END
      FROM open o WHERE c.claim_id = o.claim_id
    RETURNING c.claim_id, c.token, c.task_id, c.run_id, c.worker_id, o.revoked
), counted AS (
    SELECT *, count(*) OVER (PARTITION BY worker_id) AS freed,
           row_number() OVER (PARTITION BY worker_id ORDER BY claim_id) = 1 AS first
      FROM ended
)
SELECT e.claim_id, e.token, e.task_id, e.run_id, e.revoked, e.worker_id, i.current_state, i.version, i.entity_id, w.name AS worker,
       e.first AND w.current_load = w.max_concurrent_tasks
           AND (w.state IN ('busy', 'BUSY', 'DRAINING') OR w.state IN ('idle', 'IDLE') AND EXISTS (
                    SELECT FROM interlock.trigger_requests r
                     WHERE r.status = 'pending' AND r.partition = get_byte(uuid_send(w.worker_id), 15) %% 16
                       AND r.workflow_id = w.worker_id AND r.trigger = 'task_assigned')) AS was_full,
       e.first AND w.draining AND w.project IS NULL AND w.shutdown_at IS NULL AND w.current_load = e.freed AS drained,
       w.drained_by, w.drain_reason, interlock.grant_of(w.drained_by) IS NOT NULL AS by_operator
  FROM counted e JOIN interlock.workers w USING (worker_id) JOIN interlock.workflow_instances i ON i.id = e.task_id
 ORDER BY e.claim_id
