-- A trial succeeded. The last one that it takes keeps its token, without an end, until the breaker has closed: nobody
-- else tries in between. The others make room for the next trial.
UPDATE interlock.circuit_breakers
   SET success_count = success_count + 1, trial_until = NULL,
       trial_token = CASE WHEN success_count + 1 >= success_threshold THEN trial_token END
 WHERE breaker_id = %(breaker_id)s AND state = 'HALF_OPEN' AND trial_token = %(token)s AND trial_until IS NOT NULL
RETURNING failure_count, trial_token IS NOT NULL AS reached
