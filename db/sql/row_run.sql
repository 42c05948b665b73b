-- A run's workstreams, counted by the scheduler.
SELECT run_id AS workflow_id, critical_failures, completed AS completed_workstreams, skipped AS skipped_workstreams,
       completed + failed + cancelled + skipped AS ended_workstreams,
       planned + ready + blocked + executing + validating + paused + completed + failed + cancelled + skipped
           AS total_workstreams
  FROM interlock.run_counts WHERE run_id = ANY(%(ids)s)
