-- One tool's breaker as it stands: a look by the unique index, no lock. What was decided and is not applied yet shows: a
-- count at its threshold, a cooldown that is over, a trial whose outcome was reported.
SELECT b.breaker_id, b.project, b.tool_id, b.state, i.version, b.failure_threshold, b.cooldown_seconds,
       b.success_threshold, b.failure_count, b.success_count, b.last_failure_at, b.opened_at,
       GREATEST(0, extract(epoch FROM interlock.turned_away_until(b) - now())::double precision) AS seconds_until_reset,
       CASE b.state
           WHEN 'CLOSED' THEN b.failure_count >= b.failure_threshold
           WHEN 'OPEN' THEN b.opened_at + make_interval(secs => b.cooldown_seconds) <= now()
           ELSE b.trial_token IS NOT NULL AND num_nonnulls(b.trial_claim, b.trial_until) = 0 END AS owed
  FROM interlock.circuit_breakers b JOIN interlock.workflow_instances i ON i.id = b.breaker_id
 WHERE b.project = %(project)s AND b.tool_id = %(tool_id)s
