-- The effect that waits longest for a key that has just become free.
SELECT id, name FROM interlock.effects
 WHERE exclusive = %(exclusive)s AND status = 'pending' AND not_before <= now()
 ORDER BY not_before, id LIMIT 1
