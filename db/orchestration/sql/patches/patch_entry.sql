-- A ledger entry, with the text of its patch. `requested_by`, `requested_because`: who asked for it to land, as its task's command
-- says, and why, if that was an operator; NULL: nobody.
SELECT p.*, i.entity_id, i.project, i.context, b.body, i.created_by, r.entity_id AS run, t.entity_id AS task,
       c.made_by AS requested_by, c.reason AS requested_because
  FROM interlock.patch_ledger_entries p
  JOIN interlock.workflow_instances i ON i.id = p.ledger_id
  JOIN interlock.patches b ON b.patch_id = p.patch_id
  JOIN interlock.workflow_instances r ON r.id = p.run_id
  LEFT JOIN interlock.workflow_instances t ON t.id = p.task_id
  LEFT JOIN interlock.tasks own ON own.task_id = p.task_id AND own.workstream_id = p.workstream_id
  LEFT JOIN interlock.commands c ON c.workflow_id = own.task_id AND c.patch_id = p.patch_id AND c.run_id = p.run_id
 WHERE p.ledger_id = %(id)s
