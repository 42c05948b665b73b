-- Take a run's signals, oldest first. Deleting is taking: the run's lock makes this the only taker, and what comes later
-- waits for the next pass.
DELETE FROM interlock.run_signals
 WHERE id IN (SELECT id FROM interlock.run_signals WHERE run_id = %(run)s ORDER BY id LIMIT %(limit)s)
RETURNING id, kind, entity_id, parent_id, was, state, critical
