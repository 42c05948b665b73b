-- A ledger entry, with the text of its patch and who made it.
SELECT p.*, i.entity_id, i.project_id, i.context, b.body, r.entity_id AS run, t.entity_id AS task
  FROM patch_ledger_entries p
  JOIN workflow_instances i ON i.id = p.ledger_id
  JOIN patches b ON b.patch_id = p.patch_id
  JOIN workflow_instances r ON r.id = p.run_id
  LEFT JOIN workflow_instances t ON t.id = p.task_id
 WHERE p.ledger_id = %(id)s
