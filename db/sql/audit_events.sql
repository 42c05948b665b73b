-- Every event with its fields as they were hashed, in UTF-8, an instance's together and in order.
SELECT t.workflow_id, t.seq, t.prev_hash, t.hash, convert_to(t.id::text, 'UTF8'),
       convert_to(t.definition_version, 'UTF8'), convert_to(t.from_state, 'UTF8'), convert_to(t.to_state, 'UTF8'),
       convert_to(t.trigger, 'UTF8'), convert_to(t.triggered_by, 'UTF8'), convert_to(t.request_id, 'UTF8'),
       convert_to(t.severity, 'UTF8'), convert_to(t.metadata::text, 'UTF8'),
       convert_to(interlock.micros(t.created_at), 'UTF8')
  FROM interlock.every_transition t
 ORDER BY t.workflow_id, t.seq
