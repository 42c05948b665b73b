-- What workers hold and have not been relieved of, with where each task stands.
SELECT c.token, c.task_id, i.entity_id, i.current_state, i.version, w.worker_id, w.name AS worker
  FROM interlock.task_claims c JOIN interlock.workers w USING (worker_id) JOIN interlock.workflow_instances i ON i.id = c.task_id
 WHERE c.worker_id = ANY (%(ids)s) AND c.ended_at IS NULL AND c.revoked_at IS NULL
