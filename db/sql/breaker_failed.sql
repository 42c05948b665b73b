-- One more failure in a row. Never past the threshold: whoever reaches it opens the breaker, the others find it reached.
UPDATE interlock.circuit_breakers b
   SET failure_count = b.failure_count + 1, last_failure_at = clock_timestamp()
  FROM interlock.workflow_instances i
 WHERE b.breaker_id = %(breaker_id)s AND b.state = 'CLOSED' AND b.failure_count < b.failure_threshold
   AND i.id = b.breaker_id AND i.version = %(version)s  -- a call of before it opened and closed again does not count
RETURNING b.failure_count, b.failure_count >= b.failure_threshold AS reached
