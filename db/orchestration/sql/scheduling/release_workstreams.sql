-- What workstreams wait for has ended: completed, skipped, or (failed, cancelled) never to complete. OFFSET 0: see release_tasks.
UPDATE interlock.workstream_counts c
   SET unfinished_dependencies = c.unfinished_dependencies - d.ended,
       skipped_dependencies = c.skipped_dependencies + d.skipped, dead_dependencies = c.dead_dependencies + d.dead
  FROM (SELECT l.source_id, count(*) AS ended, count(*) FILTER (WHERE e.state = 'skipped') AS skipped,
               count(*) FILTER (WHERE e.state IN ('failed', 'cancelled')) AS dead
          FROM json_to_recordset(%(rows)s::json) AS e (id uuid, state text)
         CROSS JOIN LATERAL (SELECT source_id FROM interlock.workflow_links
                              WHERE target_id = e.id AND role = 'depends_on' OFFSET 0) l
         GROUP BY l.source_id) d
 WHERE c.ws_id = d.source_id
RETURNING c.ws_id AS id
