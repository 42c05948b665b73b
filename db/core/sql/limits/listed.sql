-- Limits in force, with the event that put each in force.
SELECT l.limit_id, l.project, l.kind, l.name, l.at_once, l.starts, l.per_seconds, t.triggered_by AS by,
       t.metadata->>'reason' AS reason, t.created_at AS since
  FROM interlock.limits l
  JOIN interlock.workflow_transitions t ON t.workflow_id = l.limit_id AND t.to_state = 'in_force'
 WHERE (%(project)s::text IS NULL OR l.project = %(project)s) AND (%(kind)s::text IS NULL OR l.kind = %(kind)s)
   AND (%(name)s::text IS NULL OR l.name = %(name)s)
 ORDER BY l.project, l.kind, l.name
 LIMIT %(most)s::bigint
