-- Workers that will never report again hold nothing any more (SSOT 1.5.7, invariant 7).
WITH freed AS (
    UPDATE task_claims SET revoked_at = COALESCE(revoked_at, now()), ended_at = now()
     WHERE worker_id = ANY (%(ids)s) AND ended_at IS NULL
)
UPDATE workers SET current_load = 0 WHERE worker_id = ANY (%(ids)s) AND current_load > 0
