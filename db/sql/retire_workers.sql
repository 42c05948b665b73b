-- Workers that will never report again hold nothing any more (WORKER-12).
WITH freed AS (
    UPDATE interlock.task_claims SET revoked_at = COALESCE(revoked_at, now()), ended_at = now()
     WHERE worker_id = ANY (%(ids)s) AND ended_at IS NULL
)
UPDATE interlock.workers SET current_load = 0 WHERE worker_id = ANY (%(ids)s) AND current_load > 0
