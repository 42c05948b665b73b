-- The tasks of each workstream, counted again without those left out. These counts include
-- what waiting signals of tasks and gates would add, so the same statement deletes these.
WITH counted AS (
    DELETE FROM interlock.run_signals WHERE run_id = %(run)s AND kind IN ('task', 'test_gate')
)
UPDATE interlock.workstream_counts c
   SET pending = f.pending, queued = f.queued, running = f.running, validating = f.validating, completed = f.completed,
       failed = f.failed, retrying = f.retrying, cancelled = f.cancelled, blocked = f.blocked,
       critical_failures = f.critical,
       quarantined_patches = (SELECT count(*) FROM interlock.patch_ledger_entries p  -- not of a task that no longer counts
                               WHERE p.workstream_id = w.ws_id AND p.state = 'quarantined'
                                 AND NOT EXISTS (SELECT FROM interlock.tasks t WHERE t.task_id = p.task_id AND t.left_out))
  FROM interlock.workstreams w
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE t.state = 'pending') AS pending, count(*) FILTER (WHERE t.state = 'queued') AS queued,
              count(*) FILTER (WHERE t.state = 'running') AS running,
              count(*) FILTER (WHERE t.state = 'validating') AS validating,
              count(*) FILTER (WHERE t.state = 'completed') AS completed,
              count(*) FILTER (WHERE t.state = 'failed') AS failed,
              count(*) FILTER (WHERE t.state = 'retrying') AS retrying,
              count(*) FILTER (WHERE t.state = 'cancelled') AS cancelled,
              count(*) FILTER (WHERE t.state = 'blocked') AS blocked,
              count(*) FILTER (WHERE t.state = 'failed' AND t.is_critical) AS critical
         FROM interlock.tasks t WHERE t.workstream_id = w.ws_id AND NOT t.left_out) f
 WHERE w.run_id = %(run)s AND c.ws_id = w.ws_id
