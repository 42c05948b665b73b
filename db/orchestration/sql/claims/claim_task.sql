-- Claim the next fitting task for a worker whose row is locked: runs by fairness, each probed through tasks_queued.
-- `fair` is an optimisation fence, read in its order: the nested loop stops at the first run that has something, so that
-- no task of another run gets locked. So is CASE: PostgreSQL takes it to hold for every other task, and walks the index
-- until the first that fits; the same conditions joined by AND it thinks so rare that it reads and sorts the whole queue.
-- What its limits leave no room for is passed over; of several who ask at once, `take_claim` lets in as many as there is room for.
-- A task whose claim was committed after this statement's snapshot conflicts: then a row comes back without a token, and
-- the caller asks again.
WITH me AS MATERIALIZED (
    SELECT worker_id, split_part(name, '#', 1) AS actor, project, capabilities, ARRAY[split_part(name, '#', 1), worker_type::text] AS called,
           interlock.texts(affinity->'workstreams') AS drawn_to, interlock.texts(affinity->'phases') AS phases
      FROM interlock.workers
     WHERE worker_id = %(worker_id)s AND state IN ('idle', 'IDLE') AND NOT draining AND current_load < max_concurrent_tasks
), fair AS MATERIALIZED (
    SELECT r.run_id
      FROM interlock.runs r, me
     WHERE r.state = 'running'
       AND (me.project IS NULL OR me.project = (SELECT i.project FROM interlock.workflow_instances i WHERE i.id = r.run_id))
     ORDER BY r.priority DESC,
              (SELECT count(*) FROM interlock.task_claims c WHERE c.run_id = r.run_id AND c.ended_at IS NULL),
              r.started_at, r.run_id
), found AS MATERIALIZED (
    SELECT first.task_id, first.run_id, first.worker_id
      FROM fair
     CROSS JOIN LATERAL interlock.held_back_in(fair.run_id, (SELECT actor FROM me)) AS held_back
     CROSS JOIN LATERAL (
            SELECT t.task_id, t.run_id, me.worker_id
              FROM interlock.tasks t, me
             WHERE t.run_id = fair.run_id AND t.state = 'queued'
               AND CASE WHEN held_back <> '{}' AND interlock.held_back(held_back, 'task', t.tool, t.limit_key) THEN false
                        WHEN NOT t.required_capabilities <@ me.capabilities THEN false
                        WHEN CASE t.kind WHEN 'agent' THEN 'interlock:agent' ELSE 'interlock:execute' END
                             <> ALL (me.capabilities) THEN false
                        WHEN (SELECT count(*) FROM interlock.task_claims c
                               WHERE c.task_id = t.task_id AND c.revoked_at IS NULL AND c.ended_at IS NULL) > 0
                             THEN false
                        WHEN NOT (SELECT w.state IN ('ready', 'executing')
                                     AND (SELECT p.current_state = 'open' FROM interlock.workflow_instances p WHERE p.id = w.phase) IS NOT FALSE
                                     AND (me.phases = '{}' OR w.phase_id = ANY (me.phases))
                                     AND CASE t.affinity WHEN '{}' THEN w.affinity = '{}' OR w.affinity && me.called
                                                         ELSE t.affinity && me.called END
                                    FROM interlock.workstreams w WHERE w.ws_id = t.workstream_id) THEN false
                        ELSE me.drawn_to = '{}' OR t.workstream_id::text = ANY (me.drawn_to)
                             OR (SELECT ARRAY[i.entity_id::text, i.context->>'name'] && me.drawn_to
                                   FROM interlock.workflow_instances i WHERE i.id = t.workstream_id) END
             ORDER BY t.priority DESC, t.task_id
             LIMIT 1
               FOR NO KEY UPDATE OF t SKIP LOCKED) first
     LIMIT 1
)
SELECT found.task_id, claimed.claim_id, claimed.token
  FROM found LEFT JOIN LATERAL interlock.take_claim(found.task_id, found.run_id, found.worker_id, %(secret)s) claimed ON true
