-- An approval was decided: what it held goes on or is refused. It is decided again, and superseded if its instance has moved
-- since it was held (APPROVAL-5): `approved` allows no other bound_version.
UPDATE interlock.trigger_requests r
   SET status = CASE WHEN s.granted THEN 'pending' ELSE 'rejected' END,
       granted = s.granted,
       bound_version = CASE WHEN s.granted THEN interlock.held_for(s.approval_id) ELSE r.bound_version END,
       result = CASE WHEN s.granted THEN NULL ELSE s.reason END,
       finished_at = CASE WHEN s.granted THEN NULL ELSE now() END
  FROM json_to_recordset(%(rows)s::json) AS s (approval_id uuid, granted boolean, reason jsonb),
       interlock.workflow_instances i
 WHERE r.held_by = s.approval_id AND r.status = 'waiting' AND i.id = r.workflow_id
RETURNING r.request_id, r.partition, r.workflow_id, r.trigger, r.triggered_by, r.status, i.workflow_type, i.entity_id
