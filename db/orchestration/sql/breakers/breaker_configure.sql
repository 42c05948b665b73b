-- Give a tool's breaker another configuration: in its row, which decides, and in its context, which its deadline reads. One
-- that is open gets the new cooldown from its opening on. Failures already counted never reach a lower threshold by
-- themselves: the next one does. Nothing is written where nothing differs.
WITH changed AS (
    UPDATE interlock.circuit_breakers b
       SET failure_threshold = %(failure_threshold)s, cooldown_seconds = %(cooldown_seconds)s,
           success_threshold = %(success_threshold)s,
           failure_count = CASE WHEN b.state = 'CLOSED' AND b.failure_count < b.failure_threshold
                                THEN LEAST(b.failure_count, %(failure_threshold)s - 1) ELSE b.failure_count END
     WHERE b.project = %(project)s AND b.tool_id = %(tool_id)s
       AND (b.failure_threshold, b.cooldown_seconds, b.success_threshold)
           IS DISTINCT FROM (%(failure_threshold)s, %(cooldown_seconds)s, %(success_threshold)s)
    RETURNING b.*
), known AS (
    UPDATE interlock.workflow_instances i
       SET context = i.context || jsonb_build_object('failure_threshold', c.failure_threshold,
               'cooldown_seconds', c.cooldown_seconds, 'success_threshold', c.success_threshold)
      FROM changed c WHERE i.id = c.breaker_id
), timed AS (
    UPDATE interlock.trigger_requests r SET not_before = c.opened_at + make_interval(secs => c.cooldown_seconds)
      FROM changed c
     WHERE c.state = 'OPEN' AND r.workflow_id = c.breaker_id AND r.trigger = 'cooldown_expires'
       AND r.status = 'scheduled'
)
SELECT breaker_id FROM changed
