-- Events in the order decided; the `append` trigger checks each and continues its instance's hash chain.
INSERT INTO workflow_transitions (id, workflow_id, seq, definition_version, from_state, to_state, trigger,
                                  triggered_by, request_id, severity, metadata)
SELECT e.id, e.workflow_id, e.seq, e.definition_version, e.from_state, e.to_state, e.trigger, e.triggered_by,
       e.request_id, e.severity, e.metadata
  FROM json_to_recordset(%(rows)s::json) AS e (
           id uuid, workflow_id uuid, seq integer, definition_version text, from_state text, to_state text,
           trigger text, triggered_by text, request_id text, severity text, metadata jsonb)
