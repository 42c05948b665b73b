-- A task whose work is a patch. Its gates are those it is linked to now: one that was run again is another than the
-- context names.
SELECT t.task_id, t.workstream_id, t.run_id, i.entity_id, i.project, i.context,
       (SELECT COALESCE(jsonb_agg(l.target_id), '[]') FROM interlock.workflow_links l
         WHERE l.source_id = t.task_id AND l.role = 'gates') AS gates,
       (SELECT COALESCE(jsonb_agg(jsonb_build_object('id', p.ledger_id, 'state', p.state) ORDER BY p.created_at, p.ledger_id),
                        '[]')
          FROM interlock.patch_ledger_entries p WHERE p.workstream_id = t.workstream_id AND p.task_id = t.task_id) AS ledgers
  FROM interlock.tasks t JOIN interlock.workflow_instances i ON i.id = t.task_id
 WHERE t.task_id = %(id)s
