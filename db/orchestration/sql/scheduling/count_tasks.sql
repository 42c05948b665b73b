-- Count tasks and patches of workstreams: each row is what changed, by state.
UPDATE interlock.workstream_counts c
   SET pending = c.pending + d.pending, queued = c.queued + d.queued, running = c.running + d.running,
       validating = c.validating + d.validating, completed = c.completed + d.completed, failed = c.failed + d.failed,
       retrying = c.retrying + d.retrying, cancelled = c.cancelled + d.cancelled, blocked = c.blocked + d.blocked,
       critical_failures = c.critical_failures + d.critical_failures,
       quarantined_patches = c.quarantined_patches + d.quarantined_patches
  FROM json_to_recordset(%(rows)s::json) AS d (
           id uuid, pending integer, queued integer, running integer, validating integer, completed integer,
           failed integer, retrying integer, cancelled integer, blocked integer, critical_failures integer,
           quarantined_patches integer)
 WHERE c.ws_id = d.id
