-- Count workstreams of runs: each row is what changed, by state.
UPDATE interlock.run_counts c
   SET planned = c.planned + d.planned, ready = c.ready + d.ready, blocked = c.blocked + d.blocked,
       executing = c.executing + d.executing, validating = c.validating + d.validating, paused = c.paused + d.paused,
       completed = c.completed + d.completed, failed = c.failed + d.failed, cancelled = c.cancelled + d.cancelled,
       skipped = c.skipped + d.skipped, critical_failures = c.critical_failures + d.critical_failures
  FROM json_to_recordset(%(rows)s::json) AS d (
           id uuid, planned integer, ready integer, blocked integer, executing integer, validating integer,
           paused integer, completed integer, failed integer, cancelled integer, skipped integer,
           critical_failures integer)
 WHERE c.run_id = d.id
