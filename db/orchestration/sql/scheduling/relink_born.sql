-- What is born into a run that is on its way names gates and tasks as they were called before: a failed gate that was run
-- again, a task that an operator reset. It names the one in that place now, as whatever was there by then does; and it
-- waits for no task that was left out with nobody in its place. OFFSET 0: see release_tasks.
WITH RECURSIVE place AS (
    SELECT l.source_id, l.role, l.inverse, l.target_id AS named, l.target_id AS now, 0 AS steps
      FROM unnest(%(born)s::uuid[]) AS born
     CROSS JOIN LATERAL (SELECT * FROM interlock.workflow_links WHERE source_id = born
                            AND role IN ('depends_on', 'gates', 'blocked_by_gates') OFFSET 0) l
      LEFT JOIN interlock.test_gates g ON g.gate_id = l.target_id
      LEFT JOIN interlock.tasks t ON t.task_id = l.target_id
     WHERE g.state IN ('FAILED', 'CANCELLED') OR t.left_out
    UNION ALL
    SELECT p.source_id, p.role, p.inverse, p.named, r.source_id, p.steps + 1
      FROM place p
      JOIN interlock.workflow_links r ON r.target_id = p.now AND r.role = 'retry_of'
      LEFT JOIN interlock.test_gates g ON g.gate_id = r.source_id  -- of this run: one that is resumed has gates and tasks of its own
      LEFT JOIN interlock.test_gates old_g ON old_g.gate_id = p.now
      LEFT JOIN interlock.tasks t ON t.task_id = r.source_id
      LEFT JOIN interlock.tasks old_t ON old_t.task_id = p.now
     WHERE g.run_id = old_g.run_id OR t.run_id = old_t.run_id AND old_t.left_out
), newest AS (
    SELECT DISTINCT ON (p.source_id, p.role, p.named) p.source_id, p.named, p.now, p.role AS old_role,
           CASE WHEN t.left_out THEN 'waived' ELSE p.role END AS role,
           CASE WHEN t.left_out THEN 'waived_by' ELSE p.inverse END AS inverse
      FROM place p LEFT JOIN interlock.tasks t ON t.task_id = p.now
     ORDER BY p.source_id, p.role, p.named, p.steps DESC, p.now DESC
), changed AS MATERIALIZED (
    SELECT * FROM newest WHERE (now, role) IS DISTINCT FROM (named, old_role)
), gone AS (
    DELETE FROM interlock.workflow_links l USING changed c
     WHERE l.source_id = c.source_id AND l.role = c.old_role AND l.target_id = c.named
), made AS (
    INSERT INTO interlock.workflow_links (source_id, role, inverse, target_id)
    SELECT source_id, role, inverse, now FROM changed
        ON CONFLICT DO NOTHING
)
UPDATE interlock.tasks t SET depends_on = COALESCE(f.depends_on, '{}')
  FROM (SELECT o.task_id, array_agg(DISTINCT COALESCE(c.now, d.id) ORDER BY COALESCE(c.now, d.id))
                              FILTER (WHERE c.role IS DISTINCT FROM 'waived') AS depends_on
          FROM interlock.tasks o CROSS JOIN LATERAL unnest(o.depends_on) AS d (id)
          LEFT JOIN changed c ON c.source_id = o.task_id AND c.old_role = 'depends_on' AND c.named = d.id
         WHERE o.task_id IN (SELECT source_id FROM changed WHERE old_role = 'depends_on')
         GROUP BY o.task_id) f
 WHERE t.task_id = f.task_id
