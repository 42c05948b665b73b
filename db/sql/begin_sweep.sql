-- Begin runs of sweeps, each once per period by the database's clock: of those that another beat began first, no row.
INSERT INTO interlock.sweeps AS s (name, slot, started_at)
SELECT name, floor(extract(epoch FROM now()) / %(every_seconds)s)::bigint, now()
  FROM unnest(%(names)s::text[]) AS asked (name)
 ORDER BY name  -- two beats' messages lock them in the same order
    ON CONFLICT (name) DO UPDATE SET slot = EXCLUDED.slot, started_at = EXCLUDED.started_at, finished_at = NULL
       WHERE floor(extract(epoch FROM s.started_at) / %(every_seconds)s) < EXCLUDED.slot  -- the period may have changed
RETURNING name
