-- Budgets in force, with the event that put each in force. A run's name is that of its instance.
SELECT b.budget_id, b.project, b.kind, b.name, COALESCE(r.entity_id, b.name) AS shown, b.resource, b.most::double precision AS most,
       b.per_seconds, t.triggered_by AS by, t.metadata->>'reason' AS reason, t.created_at AS since
  FROM interlock.budgets b
  JOIN interlock.workflow_transitions t ON t.workflow_id = b.budget_id AND t.to_state = 'in_force'
  LEFT JOIN interlock.workflow_instances r ON b.kind = 'run' AND r.id::text = b.name
 WHERE (%(project)s::text IS NULL OR b.project = %(project)s) AND (%(kind)s::text IS NULL OR b.kind = %(kind)s)
   AND (%(name)s::text IS NULL OR b.name = %(name)s) AND (%(resource)s::text IS NULL OR b.resource = %(resource)s)
 ORDER BY b.project, b.kind, b.name, b.resource
