-- Who has stood too long in a state that is no end. Stories and the like rest with people: only the general threshold is
-- theirs. One pass over instances, whose columns that move are in no index; a threshold that is NULL finds nothing.
-- A running task or job has its own time limit, if that is longer; a workstream or run waits as long as its members make progress.
WITH limits (workflow_type, version, state, seconds) AS (  -- without a version: of all
    SELECT * FROM jsonb_to_recordset(%(limits)s::jsonb)
                  AS l (workflow_type text, version text, state text, seconds double precision)
), too_long AS (
    SELECT i.id
      FROM interlock.workflow_instances i
      JOIN interlock.definition_states s ON s.type = i.workflow_type AND s.version = i.definition_version
                              AND s.state = i.current_state AND NOT s.terminal
      LEFT JOIN limits l ON l.workflow_type = i.workflow_type AND l.state = i.current_state
                        AND COALESCE(l.version, i.definition_version) = i.definition_version
     CROSS JOIN LATERAL (SELECT CASE WHEN l.state IS NULL THEN %(general)s::double precision ELSE l.seconds END AS seconds) allowed
     WHERE i.updated_at <= (SELECT now() - make_interval(secs => %(least)s::double precision))
       AND i.updated_at <= now() - make_interval(secs => allowed.seconds)
       AND NOT EXISTS (SELECT FROM interlock.handovers h WHERE h.workflow_id = i.id)  -- its handover is late, not it
       AND NOT (%(but_healthy)s AND CASE
               WHEN i.workflow_type = 'task' THEN i.current_state = 'running' AND i.updated_at > now() - make_interval(
                   secs => COALESCE((SELECT k.timeout_sec FROM interlock.tasks k WHERE k.task_id = i.id), 0))
               WHEN i.workflow_type = 'job' THEN i.current_state = 'RUNNING' AND i.updated_at > now() - make_interval(
                   secs => (i.context->>'timeout_sec')::double precision)
               WHEN i.workflow_type IN ('workstream', 'run') THEN EXISTS (
                SELECT FROM (SELECT i.id AS ws_id UNION ALL SELECT w.ws_id FROM interlock.workstreams w WHERE w.run_id = i.id) g
                 CROSS JOIN LATERAL (
                       SELECT k.task_id AS id, CASE k.state WHEN 'running' THEN k.timeout_sec END AS own
                         FROM interlock.tasks k WHERE k.workstream_id = g.ws_id
                       UNION ALL
                       SELECT t.gate_id, NULL FROM interlock.test_gates t WHERE t.workstream_id = g.ws_id) member
                  JOIN interlock.workflow_instances m ON m.id = member.id
                 WHERE m.updated_at > now() - make_interval(secs => GREATEST(allowed.seconds, member.own))
                    OR EXISTS (SELECT FROM interlock.effects e
                                WHERE e.workflow_id = m.id AND e.status = 'leased' AND e.lease_until > now()))
               ELSE false END)
), silent AS (
    SELECT worker_id, last_heartbeat FROM interlock.workers
     WHERE state IN ('idle', 'busy', 'unresponsive', 'IDLE', 'BUSY', 'DRAINING')
       AND last_heartbeat < now() - make_interval(secs => %(silent)s::double precision)
), untried AS (  -- half-open breakers that nobody tries, though one gave its trial up or tasks wait for it
    SELECT b.breaker_id FROM interlock.circuit_breakers b
     WHERE b.state = 'HALF_OPEN' AND b.updated_at < now() - make_interval(secs => %(due)s::double precision)
       AND interlock.turned_away_until(b) IS NULL
       AND (b.trial_token IS NOT NULL
            OR EXISTS (SELECT FROM interlock.tasks t JOIN interlock.workflow_instances i ON i.id = t.task_id
                        WHERE t.state = 'queued' AND t.tool = b.tool_id AND i.project = b.project))
), unfired AS (  -- schedules that nobody fires, and those whose last time could not be fired
    SELECT s.schedule_id, LEAST(s.failed_at, CASE WHEN s.next_at < now() - make_interval(secs => %(due)s::double precision) THEN s.next_at END) AS since
      FROM interlock.schedules s
     WHERE s.next_at IS NOT NULL
       AND (s.failed_at IS NOT NULL OR s.next_at < now() - make_interval(secs => %(due)s::double precision))
), undelivered AS (  -- subscriptions whose endpoint takes nothing, or that nobody delivers
    SELECT subscription_id, since FROM interlock.undelivered WHERE since < now() - make_interval(secs => %(due)s::double precision)
), given_up AS (  -- nothing will move these again, however young
    SELECT r.workflow_id, r.finished_at FROM interlock.trigger_requests r
     WHERE r.status = 'dead' AND r.result->>'was' IS DISTINCT FROM 'dead'  -- no operator has settled it
    UNION ALL
    SELECT e.workflow_id, e.finished_at FROM interlock.effects e WHERE e.status = 'dead' AND e.name <> 'notice' AND e.failed_trigger IS NULL
), overdue AS (  -- nobody takes what is due: those who would are gone; what is bound to a state since left does not count
    SELECT d.workflow_id
      FROM (SELECT r.workflow_id, r.bound_version AS version, GREATEST(r.accepted_at, r.not_before) AS due_at
              FROM interlock.trigger_requests r
             WHERE r.status = 'pending'
               AND NOT EXISTS (SELECT FROM interlock.trigger_requests b  -- it keeps its place behind one that is tried again
                                WHERE b.workflow_id = r.workflow_id AND b.status = 'scheduled' AND b.attempts > 0
                                  AND b.not_before > now())
            UNION ALL
            SELECT workflow_id, bound_version, not_before FROM interlock.trigger_requests WHERE status = 'scheduled'
            UNION ALL  -- brakes, and whatever they hold, wait for an operator
            SELECT b.brake_id, NULL, b.since FROM interlock.brakes b
            UNION ALL
            SELECT r.workflow_id, NULL, GREATEST(r.accepted_at, r.not_before)
              FROM interlock.brakes b JOIN interlock.trigger_requests r ON r.held_by = b.brake_id AND r.status = 'waiting'
            UNION ALL
            SELECT workflow_id, version, lease_until FROM interlock.effects WHERE status = 'leased' AND name <> 'notice'
            UNION ALL
            SELECT e.workflow_id, e.version, e.not_before  -- each queue has nodes of its own
              FROM interlock.effects e
             WHERE e.status = 'pending' AND e.name <> 'notice'
               AND NOT EXISTS (SELECT FROM interlock.effects l WHERE l.status = 'leased' AND l.queue = e.queue)) d
      JOIN interlock.workflow_instances i ON i.id = d.workflow_id AND i.version = COALESCE(d.version, i.version)
     WHERE d.due_at < now() - make_interval(secs => %(due)s::double precision)
)
SELECT i.id, i.workflow_type, i.definition_version, i.current_state, i.version, i.entity_id, i.project, i.context,
       i.error, since.at AS since, extract(epoch FROM now() - since.at)::double precision AS seconds,
       count(*) OVER () AS total
  FROM (SELECT id FROM too_long UNION SELECT worker_id FROM silent UNION SELECT workflow_id FROM given_up
        UNION SELECT workflow_id FROM overdue UNION SELECT breaker_id FROM untried UNION SELECT schedule_id FROM unfired
        UNION SELECT subscription_id FROM undelivered UNION SELECT unnest(%(unservable)s::uuid[])) found
  JOIN interlock.workflow_instances i USING (id)
  JOIN interlock.definition_states s ON s.type = i.workflow_type AND s.version = i.definition_version
                          AND s.state = i.current_state AND NOT s.terminal
  LEFT JOIN interlock.workflow_transitions t ON t.workflow_id = i.id AND t.seq = i.version
  LEFT JOIN silent ON silent.worker_id = i.id  -- it stands still since it was last heard of
  LEFT JOIN unfired ON unfired.schedule_id = i.id
  LEFT JOIN undelivered ON undelivered.subscription_id = i.id
 CROSS JOIN LATERAL (SELECT COALESCE(t.created_at, i.created_at) AS entered) e
 CROSS JOIN LATERAL (SELECT COALESCE(silent.last_heartbeat, unfired.since, undelivered.since, e.entered) AS at) since
 WHERE (i.id IN (SELECT id FROM too_long) OR silent.worker_id IS NOT NULL OR i.id IN (SELECT workflow_id FROM overdue)
        OR i.id IN (SELECT breaker_id FROM untried) OR unfired.schedule_id IS NOT NULL OR undelivered.subscription_id IS NOT NULL
        OR i.id = ANY (%(unservable)s::uuid[])
        OR i.id IN (SELECT workflow_id FROM given_up g WHERE g.workflow_id = i.id AND g.finished_at >= e.entered))
   AND (%(type)s::text IS NULL OR i.workflow_type = %(type)s)
   AND (%(project)s::text IS NULL OR i.project = %(project)s)
 ORDER BY since.at, i.id
 LIMIT %(limit)s
