-- Begin a sweep's run, once per period by the database's clock: zero rows when another beat's was first.
INSERT INTO sweeps AS s (name, slot, started_at)
VALUES (%(name)s, floor(extract(epoch FROM now()) / %(every_seconds)s)::bigint, now())
    ON CONFLICT (name) DO UPDATE SET slot = EXCLUDED.slot, started_at = EXCLUDED.started_at, finished_at = NULL
       WHERE floor(extract(epoch FROM s.started_at) / %(every_seconds)s) < EXCLUDED.slot  -- the period may have changed
RETURNING slot
