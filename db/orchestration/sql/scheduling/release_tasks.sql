-- What tasks wait for has ended: one thing less in the way, or one that stays in the way for ever. `ended` are tasks (role
-- `depends_on`) and gates (role `blocked_by_gates`). OFFSET 0 is an optimisation fence: each one's links are looked up;
-- joined, a handful of ends would read all links of all runs.
UPDATE interlock.tasks t
   SET unmet = t.unmet - d.met, dead = t.dead + d.dead
  FROM (SELECT l.source_id, count(*) FILTER (WHERE e.well) AS met, count(*) FILTER (WHERE NOT e.well) AS dead
          FROM json_to_recordset(%(rows)s::json) AS e (id uuid, well boolean)
         CROSS JOIN LATERAL (SELECT source_id FROM interlock.workflow_links
                              WHERE target_id = e.id AND role IN ('depends_on', 'blocked_by_gates') OFFSET 0) l
         GROUP BY l.source_id) d
 WHERE t.task_id = d.source_id
RETURNING t.task_id AS id
