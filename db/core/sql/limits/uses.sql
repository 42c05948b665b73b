-- What is used of limits, by the names that each counts; and what waits: queued tasks that nobody has claimed, effects that are due,
-- pending jobs; of each at most `most`, if that is not NULL.
WITH waiting AS MATERIALIZED (
    SELECT project, type, tool, limit_key, count(*) AS waiting
      FROM ((SELECT i.project, 'task' AS type, t.tool, t.limit_key
               FROM interlock.tasks t JOIN interlock.workflow_instances i ON i.id = t.task_id
              WHERE t.state = 'queued'
                AND NOT EXISTS (SELECT FROM interlock.task_claims c WHERE c.task_id = t.task_id AND c.revoked_at IS NULL AND c.ended_at IS NULL)
              LIMIT %(most)s::bigint)
            UNION ALL
            (SELECT i.project, i.workflow_type, NULL, e.limit_key
               FROM interlock.effects e JOIN interlock.workflow_instances i ON i.id = e.workflow_id
              WHERE e.status = 'pending' AND e.not_before <= now()
              LIMIT %(most)s::bigint)
            UNION ALL
            (SELECT i.project, i.workflow_type, i.context->>'tool', NULL
               FROM interlock.jobs j JOIN interlock.workflow_instances i ON i.id = j.id
              WHERE j.completed_at IS NULL AND j.status = 'PENDING' AND NOT interlock.starts_job(j.id)
              LIMIT %(most)s::bigint)) each
     GROUP BY 1, 2, 3, 4
), counted AS MATERIALIZED (
    SELECT l.limit_id, interlock.counts_as(l, w.type, w.tool, w.limit_key) AS name, sum(w.waiting)::integer AS waiting
      FROM interlock.limits l JOIN waiting w USING (project) WHERE l.limit_id = ANY (%(ids)s) GROUP BY 1, 2
)
SELECT p.*, COALESCE(c.waiting, 0) AS waiting
  FROM interlock.limit_places(%(ids)s, NULL) p LEFT JOIN counted c USING (limit_id, name)
 ORDER BY p.project, p.kind, p.name, p.pattern
