-- A trial failed: its token stays, without an end, until the breaker is open again.
UPDATE interlock.circuit_breakers
   SET failure_count = failure_count + 1, last_failure_at = clock_timestamp(), trial_until = NULL
 WHERE breaker_id = %(breaker_id)s AND state = 'HALF_OPEN' AND trial_token = %(token)s AND trial_until IS NOT NULL
RETURNING failure_count, true AS reached
