-- Write what became of requests. Only one that is still pending can be settled: zero rows would mean a lost race.
UPDATE trigger_requests r
   SET status = s.status,
       result = s.result,
       error = s.error,
       attempts = r.attempts + CASE WHEN s.error IS NULL THEN 0 ELSE 1 END,
       not_before = CASE WHEN s.delay_seconds IS NULL THEN r.not_before
                         ELSE now() + make_interval(secs => s.delay_seconds) END,
       held_by = COALESCE(s.held_by, r.held_by),
       finished_at = CASE WHEN s.status IN ('applied', 'rejected', 'superseded', 'dead') THEN now() END
  FROM json_to_recordset(%(rows)s::json) AS s (
           seq bigint, status text, result jsonb, error text, delay_seconds double precision, held_by uuid)
 WHERE r.seq = s.seq AND r.status = 'pending'
