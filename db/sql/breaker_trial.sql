-- Take the trial of a half-open breaker, if nobody has it: of many who ask at once, the row lock lets one in, and the
-- others find its token. One who died with it is waited for until the lease is over.
UPDATE interlock.circuit_breakers
   SET trial_token = gen_random_uuid(), trial_until = now() + make_interval(secs => %(lease_seconds)s)
 WHERE breaker_id = %(breaker_id)s AND state = 'HALF_OPEN' AND (trial_token IS NULL OR trial_until < now())
RETURNING trial_token
