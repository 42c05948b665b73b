-- What a round of deciding leads to, in one statement: instances to where their last move leads (if they still stand
-- where they were decided), events in the order decided (the `append` trigger checks each and continues its chain), and
-- what became of each request (only one still pending can be settled). Fewer rows than given would mean a lost race.
-- The arrays are for the planner: it takes JSON for a hundred rows, and would rather read all instances, or all that is pending, than look up as many.
WITH moves AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(moves)s::json) AS m (id uuid, seen integer, version integer, state text)
), moved AS (
    UPDATE interlock.workflow_instances i
       SET current_state = m.state, version = m.version, error = NULL, retry_count = 0, updated_at = now()
      FROM moves m
     WHERE i.id = m.id AND i.version = m.seen AND i.id = ANY (ARRAY(SELECT id FROM moves))
    RETURNING 1
), appended AS (
    INSERT INTO interlock.workflow_transitions (id, workflow_id, seq, workflow_type, definition_version, from_state, to_state,
                                      trigger, triggered_by, request_id, severity, metadata)
    SELECT e.id, e.workflow_id, e.seq, e.workflow_type, e.definition_version, e.from_state, e.to_state, e.trigger,
           e.triggered_by, e.request_id, e.severity, e.metadata
      FROM json_to_recordset(%(events)s::json) AS e (
               id uuid, workflow_id uuid, seq integer, workflow_type text, definition_version text, from_state text,
               to_state text, trigger text, triggered_by text, request_id text, severity text, metadata jsonb)
    RETURNING 1
), outcomes AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(settled)s::json) AS s (
               seq bigint, status text, result jsonb, error text, delay_seconds double precision, held_by uuid)
), settled AS (
    UPDATE interlock.trigger_requests r
       SET status = s.status,
           result = s.result,
           error = s.error,
           attempts = r.attempts + CASE WHEN s.error IS NULL THEN 0 ELSE 1 END,
           not_before = CASE WHEN s.delay_seconds IS NULL THEN r.not_before
                             ELSE now() + make_interval(secs => s.delay_seconds) END,
           held_by = COALESCE(s.held_by, r.held_by),
           finished_at = CASE WHEN s.status IN ('applied', 'rejected', 'superseded', 'dead') THEN now() END
      FROM outcomes s
     WHERE r.seq = s.seq AND r.status = 'pending' AND r.seq = ANY (ARRAY(SELECT seq FROM outcomes))
    RETURNING 1
)
SELECT (SELECT count(*) FROM moved) AS moved,
       (SELECT count(*) FROM appended) AS appended,
       (SELECT count(*) FROM settled) AS settled
