-- Brakes that are on, the oldest first, with what each holds. A run's and an instance's name is that of its instance.
SELECT b.brake_id, b.project, b.entity_id, b.kind, b.name, COALESCE(i.workflow_type || '/' || i.entity_id, b.name) AS shown, b.reason,
       b.since, own.created_by AS by, own.current_state AS state, own.version, own.context,
       (SELECT count(*) FROM interlock.trigger_requests r WHERE r.held_by = b.brake_id AND r.status = 'waiting') AS held
  FROM interlock.brakes b
  JOIN interlock.workflow_instances own ON own.id = b.brake_id
  LEFT JOIN interlock.workflow_instances i ON b.kind IN ('run', 'instance') AND i.id::text = b.name
 WHERE (%(project)s::text IS NULL OR b.project = %(project)s) AND (%(name)s::text IS NULL OR b.entity_id = %(name)s)
 ORDER BY b.since, b.brake_id
