-- All that belongs together with some instances, however far: linked in either direction, or of one run; with whether it
-- has ended long ago.
WITH RECURSIVE near (id) AS (
    SELECT unnest(%(seeds)s::uuid[])
    UNION
    SELECT next.id
      FROM near
     CROSS JOIN LATERAL (
            SELECT target_id AS id FROM interlock.workflow_links WHERE source_id = near.id
            UNION ALL SELECT source_id FROM interlock.workflow_links WHERE target_id = near.id
            UNION ALL SELECT ws_id FROM interlock.workstreams WHERE run_id = near.id
            UNION ALL SELECT task_id FROM interlock.tasks WHERE workstream_id = near.id
            UNION ALL SELECT ledger_id FROM interlock.patch_ledger_entries WHERE workstream_id = near.id
            UNION ALL SELECT gate_id FROM interlock.test_gates WHERE workstream_id = near.id
            UNION ALL SELECT run_id FROM interlock.workstreams WHERE ws_id = near.id
            UNION ALL SELECT workstream_id FROM interlock.tasks WHERE task_id = near.id
            UNION ALL SELECT workstream_id FROM interlock.patch_ledger_entries WHERE ledger_id = near.id
            UNION ALL SELECT workstream_id FROM interlock.test_gates WHERE gate_id = near.id AND workstream_id IS NOT NULL) next
)
SELECT i.id, s.terminal AND i.updated_at <= now() - %(older_than)s::interval AS ended,
       ARRAY(SELECT target_id FROM interlock.workflow_links WHERE source_id = i.id)
       || ARRAY(SELECT run_id FROM interlock.workstreams WHERE ws_id = i.id)
       || ARRAY(SELECT workstream_id FROM interlock.tasks WHERE task_id = i.id)
       || ARRAY(SELECT workstream_id FROM interlock.patch_ledger_entries WHERE ledger_id = i.id)
       || ARRAY(SELECT workstream_id FROM interlock.test_gates WHERE gate_id = i.id AND workstream_id IS NOT NULL) AS joined
  FROM near
  JOIN interlock.workflow_instances i USING (id)
  JOIN interlock.definition_states s ON s.type = i.workflow_type AND s.version = i.definition_version AND s.state = i.current_state
