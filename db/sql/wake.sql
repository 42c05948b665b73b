-- Requests whose time has come (timers, retries, `--after`) become pending, in bounded batches; two sweeps at once
-- take different rows.
WITH due AS (
    SELECT seq FROM interlock.trigger_requests WHERE status = 'scheduled' AND not_before <= now()
     ORDER BY not_before LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE interlock.trigger_requests r SET status = 'pending' FROM due d WHERE r.seq = d.seq
