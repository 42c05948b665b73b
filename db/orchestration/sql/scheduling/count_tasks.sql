-- Count tasks and patches of workstreams: each row is what changed, by state. What they are now decides whether to look closer.
UPDATE interlock.workstream_counts c
   SET pending = c.pending + d.pending, queued = c.queued + d.queued, running = c.running + d.running,
       validating = c.validating + d.validating, completed = c.completed + d.completed, failed = c.failed + d.failed,
       retrying = c.retrying + d.retrying, cancelled = c.cancelled + d.cancelled, blocked = c.blocked + d.blocked,
       critical_failures = c.critical_failures + d.critical_failures,
       quarantined_patches = c.quarantined_patches + d.quarantined_patches
  FROM interlock.workstreams w JOIN interlock.runs r USING (run_id)
  JOIN json_to_recordset(%(rows)s::json) AS d (
           id uuid, pending integer, queued integer, running integer, validating integer, completed integer,
           failed integer, retrying integer, cancelled integer, blocked integer, critical_failures integer,
           quarantined_patches integer) ON d.id = w.ws_id
 WHERE c.ws_id = w.ws_id
RETURNING w.state, r.state AS run_state, c.*
