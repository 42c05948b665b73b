-- After an operator changed what waits for what: what stands in each task's way, counted again.
UPDATE interlock.tasks t SET unmet = f.unmet, dead = f.dead, depends_on = f.depends_on
  FROM interlock.tasks o
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE NOT e.met) AS unmet, count(*) FILTER (WHERE e.lost) AS dead,
              COALESCE(array_agg(e.target_id ORDER BY e.target_id) FILTER (WHERE e.role = 'depends_on'), '{}') AS depends_on
         FROM (SELECT l.target_id, l.role, COALESCE(d.state = 'completed', g.state = 'PASSED') AS met,
                      COALESCE(d.state IN ('failed', 'cancelled'), g.lost) AS lost
                 FROM interlock.workflow_links l
                 LEFT JOIN interlock.tasks d ON d.task_id = l.target_id
                 LEFT JOIN interlock.test_gates g ON g.gate_id = l.target_id
                WHERE l.source_id = o.task_id AND l.role IN ('depends_on', 'blocked_by_gates')) e) f
 WHERE o.run_id = %(run)s AND t.task_id = o.task_id
   AND (t.unmet <> f.unmet OR t.dead <> f.dead
        OR NOT (t.depends_on <@ f.depends_on AND t.depends_on @> f.depends_on))
