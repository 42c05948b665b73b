-- What the scheduler asked for and nobody has applied yet: it asks anew, of what an operator made of the run.
UPDATE interlock.trigger_requests r
   SET status = 'superseded', finished_at = now(),
       result = jsonb_build_object('code', 'superseded', 'message', 'an operator changed what it was owed for')
 WHERE r.status = 'pending' AND r.triggered_by = 'scheduler' AND (%(only)s::uuid IS NULL OR r.workflow_id = %(only)s)
   AND r.workflow_id IN (SELECT task_id FROM interlock.tasks WHERE run_id = %(run)s
                         UNION ALL SELECT gate_id FROM interlock.test_gates WHERE run_id = %(run)s
                         UNION ALL SELECT ws_id FROM interlock.workstreams WHERE run_id = %(run)s)
