-- A success forgets the failures before it. It writes nothing where there are none, and nothing where they have already
-- opened the breaker.
UPDATE interlock.circuit_breakers
   SET failure_count = 0
 WHERE breaker_id = %(breaker_id)s AND state = 'CLOSED' AND failure_count > 0 AND failure_count < failure_threshold
RETURNING breaker_id
