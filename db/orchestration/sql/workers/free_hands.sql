-- How many worker processes with room could take something now: of each set of capabilities and affinity, if a queued task
-- fits it. A task with an affinity of its own fits the set if it is for somebody in it; see claim_task.
WITH free AS MATERIALIZED (
    SELECT capabilities, interlock.texts(affinity->'workstreams') AS drawn_to, interlock.texts(affinity->'phases') AS phases,
           count(*) AS hands,
           array_agg(split_part(name, '#', 1)) || array_agg(DISTINCT worker_type::text) AS called
      FROM interlock.workers
     WHERE state = 'idle' AND NOT draining AND current_load < max_concurrent_tasks
       AND 'interlock:execute' = ANY (capabilities)
       AND EXISTS (SELECT FROM interlock.tasks WHERE state = 'queued')  -- asked once: mostly there is none, and nothing is read
       AND last_heartbeat > now() - make_interval(secs => %(silent_seconds)s)
     GROUP BY capabilities, drawn_to, phases
), running AS MATERIALIZED (
    SELECT run_id, interlock.held_back_in(run_id) AS held_back FROM interlock.runs WHERE state = 'running' AND EXISTS (SELECT FROM free)
)
SELECT COALESCE(sum(LEAST(f.hands, waiting.tasks)), 0)::integer
  FROM free f
 CROSS JOIN LATERAL (
        SELECT count(*) AS tasks
          FROM (SELECT
                  FROM running r JOIN interlock.tasks t ON t.run_id = r.run_id AND t.state = 'queued'
                 WHERE t.kind <> 'agent' AND t.required_capabilities <@ f.capabilities
                   AND (r.held_back = '{}' OR interlock.held_back(r.held_back, 'task', t.tool, t.limit_key) IS NOT TRUE)
                   AND (SELECT w.state IN ('ready', 'executing')
                               AND (SELECT p.current_state = 'open' FROM interlock.workflow_instances p WHERE p.id = w.phase) IS NOT FALSE
                               AND (f.phases = '{}' OR w.phase_id = ANY (f.phases))
                               AND CASE t.affinity WHEN '{}' THEN w.affinity = '{}' OR w.affinity && f.called
                                                   ELSE t.affinity && f.called END
                          FROM interlock.workstreams w WHERE w.ws_id = t.workstream_id)
                   AND (f.drawn_to = '{}' OR t.workstream_id::text = ANY (f.drawn_to)
                        OR (SELECT ARRAY[i.entity_id::text, i.context->>'name'] && f.drawn_to
                              FROM interlock.workflow_instances i WHERE i.id = t.workstream_id))
                   AND (SELECT count(*) FROM interlock.task_claims c
                         WHERE c.task_id = t.task_id AND c.revoked_at IS NULL AND c.ended_at IS NULL) = 0
                 LIMIT %(limit)s) fitting) waiting
