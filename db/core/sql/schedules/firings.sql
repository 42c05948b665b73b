-- What became of the newest times of a schedule: the triggers that it fired, as long as their requests are kept; the instances and runs that
-- it created, which have its creator and the time in their name; and the times that could not be fired. `due`: the time, as `stamp` writes it.
WITH it AS (
    SELECT i.id, i.project, i.created_by, i.context->'does' AS does,
           CASE WHEN i.context->'does' ? 'create' THEN split_part(i.context->'does'->'create'->>'type', '@', 1) ELSE 'run' END AS type,
           CASE WHEN i.context->'does' ? 'create' THEN i.context->'does'->'create'->>'name' ELSE i.entity_id || '-%%due' END AS named
      FROM interlock.workflow_instances i WHERE i.id = %(id)s
), fired AS (
    SELECT split_part(r.request_id, ':', 4) AS due, r.trigger::text AS what, r.status::text, r.accepted_at AS at,
           COALESCE(r.error, r.result->>'message', (r.result->>'from') || ' → ' || (r.result->>'to')) AS message
      FROM it JOIN interlock.trigger_requests r ON r.workflow_id = (it.does->'fire'->>'instance')::uuid
     WHERE starts_with(r.request_id, 'interlock:schedule:' || it.id || ':')
     ORDER BY r.seq DESC LIMIT %(limit)s
), made AS (
    SELECT substr(e.entity_id, strpos(it.named, '%%due'), 16) AS due, e.workflow_type || '/' || e.entity_id AS what,
           e.current_state::text AS status, e.created_at AS at, NULL AS message
      FROM it JOIN interlock.every_instance e ON (e.project, e.workflow_type, e.created_by) = (it.project, it.type, it.created_by)
     WHERE NOT it.does ? 'fire' AND starts_with(e.entity_id, split_part(it.named, '%%due', 1))
       AND replace(it.named, '%%due', substr(e.entity_id, strpos(it.named, '%%due'), 16)) = e.entity_id
       AND substr(e.entity_id, strpos(it.named, '%%due'), 16) ~ '^\d{8}T\d{6}Z$'
     ORDER BY e.created_at DESC LIMIT %(limit)s
), failed AS (
    SELECT NULL AS due, t.trigger::text AS what, 'failed' AS status, t.created_at AS at, t.metadata->>'reason' AS message
      FROM it JOIN interlock.workflow_transitions t ON t.workflow_id = it.id
     WHERE t.trigger IN ('firing_failed', 'lapse') ORDER BY t.seq DESC LIMIT %(limit)s
)
SELECT * FROM fired UNION ALL SELECT * FROM made UNION ALL SELECT * FROM failed ORDER BY at DESC LIMIT %(limit)s
