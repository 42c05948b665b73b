-- A ledger entry, with the text of its patch, and who made the entry and why (of a task's patch: no reason). `requested_by`:
-- who asked for it to land, as its own command or its task's says; NULL: nobody.
SELECT p.*, i.entity_id, i.project, i.context, b.body, i.created_by,
       (SELECT c.reason FROM interlock.commands c WHERE c.workflow_id = p.ledger_id) AS created_because, r.entity_id AS run, t.entity_id AS task,
       (SELECT c.made_by FROM interlock.commands c
         WHERE c.patch_id = p.patch_id AND c.run_id = p.run_id
           AND c.workflow_id IN (p.ledger_id, (SELECT own.task_id FROM interlock.tasks own
                                                WHERE own.task_id = p.task_id AND own.workstream_id = p.workstream_id))
         LIMIT 1) AS requested_by
  FROM interlock.patch_ledger_entries p
  JOIN interlock.workflow_instances i ON i.id = p.ledger_id
  JOIN interlock.patches b ON b.patch_id = p.patch_id
  JOIN interlock.workflow_instances r ON r.id = p.run_id
  LEFT JOIN interlock.workflow_instances t ON t.id = p.task_id
 WHERE p.ledger_id = %(id)s
