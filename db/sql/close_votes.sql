-- A vote was decided: those held for the same trigger were part of it, those held for another are superseded.
UPDATE interlock.trigger_requests r
   SET status = CASE WHEN r.trigger = s.trigger THEN 'applied' ELSE 'superseded' END,
       result = s.result,
       finished_at = now()
  FROM json_to_recordset(%(rows)s::json) AS s (workflow_id uuid, trigger text, result jsonb)
 WHERE r.workflow_id = s.workflow_id AND r.status = 'waiting' AND r.held_by IS NULL
