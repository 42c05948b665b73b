-- What a report on one instance covers besides it: of a run or a workstream, its members; of a patch, its task, its
-- workstream, and the gates that judge either. The archive's too.
SELECT ws_id AS id FROM interlock.workstreams WHERE run_id = %(id)s
UNION
SELECT task_id FROM interlock.tasks WHERE run_id = %(id)s OR workstream_id = %(id)s
UNION
SELECT gate_id FROM interlock.test_gates WHERE run_id = %(id)s OR workstream_id = %(id)s
UNION
SELECT ledger_id FROM interlock.patch_ledger_entries WHERE run_id = %(id)s OR workstream_id = %(id)s
UNION
SELECT workflow_id FROM interlock.archived_records
 WHERE kind IN ('workstreams', 'tasks', 'test_gates', 'patch_ledger_entries')
   AND %(id)s::text IN (body->>'run_id', body->>'workstream_id')
UNION
SELECT unnest(ARRAY[task_id, workstream_id]) FROM interlock.patch_ledger_entries WHERE ledger_id = %(id)s
UNION
SELECT unnest(ARRAY[body->>'task_id', body->>'workstream_id'])::uuid FROM interlock.archived_records
 WHERE kind = 'patch_ledger_entries' AND key = %(id)s::text
UNION
SELECT g.gate_id
  FROM interlock.patch_ledger_entries p
  JOIN interlock.test_gates g ON g.workstream_id = p.workstream_id AND g.moment <> 'task'
 WHERE p.ledger_id = %(id)s
UNION
SELECT l.target_id
  FROM interlock.patch_ledger_entries p JOIN interlock.workflow_links l ON l.source_id = p.task_id AND l.role = 'gates'
 WHERE p.ledger_id = %(id)s
UNION
SELECT e.gate::uuid
  FROM interlock.every_instance i, jsonb_array_elements_text(i.context->'gates') AS e (gate)
 WHERE i.id = %(id)s AND i.workflow_type = 'patch_ledger' AND jsonb_typeof(i.context->'gates') = 'array'
