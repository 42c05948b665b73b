-- Events with all that was hashed of them, and the names of what they belong to. `db/core/history.py` adds which and in what
-- order, and reads the archive's with it too.
SELECT t.xid::text::bigint AS xid, t.position, t.id, t.workflow_id, t.seq, t.definition_version, t.from_state, t.to_state,
       t.trigger, t.triggered_by, t.request_id, t.authority, t.proof, t.login, t.severity, t.metadata, t.metadata::text AS metadata_text, t.created_at,
       t.prev_hash, t.hash, i.workflow_type, i.entity_id, i.project, i.created_by, i.created_at AS born_at, i.born_version, i.context_sha256, i.bodies,
       i.born_proof, d.event AS named_event,
       CASE i.workflow_type WHEN 'run' THEN i.id ELSE COALESCE(w.run_id, (r.body->>'run_id')::uuid) END AS run_id,
       own.workstream_id,
       COALESCE(w.phase_id, r.body->>'phase_id', interlock.phase_of(i.workflow_type, i.context)) AS phase_id
  FROM interlock.workflow_transitions t
  JOIN interlock.workflow_instances i ON i.id = t.workflow_id
  LEFT JOIN interlock.definition_transitions d
         ON (d.type, d.version, d.source, d.trigger, d.dest)
            = (t.workflow_type, t.definition_version, t.from_state, t.trigger, t.to_state)
 CROSS JOIN LATERAL (SELECT interlock.workstream_of(i.workflow_type, i.definition_version, i.id, i.context)) AS
            own (workstream_id)
  LEFT JOIN interlock.workstreams w ON w.ws_id = own.workstream_id
  LEFT JOIN LATERAL (SELECT a.body FROM interlock.archived_records a  -- LIMIT: one look for each event, never a join of all
                      WHERE w.ws_id IS NULL AND a.kind = 'workstreams' AND a.key = own.workstream_id::text
                      LIMIT 1) r ON true
