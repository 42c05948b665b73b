-- Set requests aside that are not applied yet, or that a brake holds: dead, with who did it and why. Those at work in a round are seen by it then.
-- Those dead already stay so, and count as settled: `was` is `dead`. What they died of stays in the error.
WITH aside AS (
    UPDATE interlock.trigger_requests r
       SET status = 'dead', finished_at = now(),
           error = %(error)s || CASE WHEN r.status = 'dead' AND r.error IS NOT NULL THEN ' (' || r.error || ')' ELSE '' END,
           result = jsonb_build_object('code', 'quarantined', 'by', %(by)s::text, 'reason', %(reason)s::text,
                                       'message', %(error)s::text, 'was', r.status)
     WHERE r.request_id = ANY (%(ids)s)
       AND (r.status IN ('pending', 'scheduled') OR r.status = 'waiting' AND interlock.is_braked(r.held_by)
            OR r.status = 'dead' AND r.result->>'code' IS DISTINCT FROM 'quarantined')
    RETURNING r.request_id, r.workflow_id, r.trigger, r.result->>'was' AS was
)
SELECT a.request_id, a.trigger, i.workflow_type, i.entity_id, a.was FROM aside a JOIN interlock.workflow_instances i ON i.id = a.workflow_id
