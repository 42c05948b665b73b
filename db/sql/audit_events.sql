-- Every event with its fields as they were hashed, an instance's together and in order.
SELECT t.workflow_id, t.seq, t.prev_hash, t.hash, t.definition_version, t.from_state, t.to_state, t.trigger,
       t.id::text AS f1, t.workflow_id::text AS f2, t.seq::text AS f3, t.triggered_by AS f8, t.request_id AS f9,
       t.severity AS f10, t.metadata::text AS f11, interlock_micros(t.created_at) AS f12
  FROM workflow_transitions t
 ORDER BY t.workflow_id, t.seq
