-- A run, as a tree of it begins.
SELECT r.run_id AS id, i.entity_id AS name, i.project_id, i.version, r.state, r.priority, r.phase_id, i.created_by,
       i.context->>'plan' AS plan, i.context->>'title' AS title, i.context->>'retry_of' AS retry_of, r.created_at,
       r.started_at, r.completed_at, now() AS at
  FROM interlock.runs r JOIN interlock.workflow_instances i ON i.id = r.run_id
 WHERE r.run_id = %(run)s
