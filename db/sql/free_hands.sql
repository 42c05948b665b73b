-- How many worker processes with room could take something now: of each set of capabilities, if a queued task fits it.
WITH free AS MATERIALIZED (
    SELECT capabilities, count(*) AS hands
      FROM workers
     WHERE state = 'idle' AND NOT draining AND current_load < max_concurrent_tasks
       AND 'interlock:execute' = ANY (capabilities)
       AND EXISTS (SELECT FROM tasks WHERE state = 'queued')  -- asked once: mostly there is none, and nothing is read
       AND last_heartbeat > now() - make_interval(secs => %(silent_seconds)s)
     GROUP BY capabilities
)
SELECT COALESCE(sum(LEAST(f.hands, waiting.tasks)), 0)::integer
  FROM free f
 CROSS JOIN LATERAL (
        SELECT count(*) AS tasks
          FROM (SELECT
                  FROM runs r JOIN tasks t ON t.run_id = r.run_id AND t.state = 'queued'
                 WHERE r.state = 'running' AND t.kind <> 'agent' AND t.required_capabilities <@ f.capabilities
                   AND (SELECT w.state IN ('ready', 'executing') FROM workstreams w WHERE w.ws_id = t.workstream_id)
                   AND (SELECT count(*) FROM task_claims c
                         WHERE c.task_id = t.task_id AND c.revoked_at IS NULL AND c.ended_at IS NULL) = 0
                 LIMIT %(limit)s) fitting) waiting
