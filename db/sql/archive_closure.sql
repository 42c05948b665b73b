-- All that belongs together with some instances, however far: linked in either direction, or of one run; with whether it
-- has ended long ago.
WITH RECURSIVE near (id) AS (
    SELECT unnest(%(seeds)s::uuid[])
    UNION
    SELECT next.id
      FROM near
     CROSS JOIN LATERAL (
            SELECT target_id AS id FROM workflow_links WHERE source_id = near.id
            UNION ALL SELECT source_id FROM workflow_links WHERE target_id = near.id
            UNION ALL SELECT ws_id FROM workstreams WHERE run_id = near.id
            UNION ALL SELECT task_id FROM tasks WHERE workstream_id = near.id
            UNION ALL SELECT ledger_id FROM patch_ledger_entries WHERE workstream_id = near.id
            UNION ALL SELECT gate_id FROM test_gates WHERE workstream_id = near.id
            UNION ALL SELECT run_id FROM workstreams WHERE ws_id = near.id
            UNION ALL SELECT workstream_id FROM tasks WHERE task_id = near.id
            UNION ALL SELECT workstream_id FROM patch_ledger_entries WHERE ledger_id = near.id
            UNION ALL SELECT workstream_id FROM test_gates WHERE gate_id = near.id AND workstream_id IS NOT NULL) next
)
SELECT i.id, s.terminal AND i.updated_at <= now() - %(older_than)s::interval AS ended,
       ARRAY(SELECT target_id FROM workflow_links WHERE source_id = i.id)
       || ARRAY(SELECT run_id FROM workstreams WHERE ws_id = i.id)
       || ARRAY(SELECT workstream_id FROM tasks WHERE task_id = i.id)
       || ARRAY(SELECT workstream_id FROM patch_ledger_entries WHERE ledger_id = i.id)
       || ARRAY(SELECT workstream_id FROM test_gates WHERE gate_id = i.id AND workstream_id IS NOT NULL) AS joined
  FROM near
  JOIN workflow_instances i USING (id)
  JOIN definition_states s ON s.type = i.workflow_type AND s.version = i.definition_version AND s.state = i.current_state
