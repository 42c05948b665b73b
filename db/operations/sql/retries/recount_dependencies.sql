-- After workstreams were replaced: what stands in the way of those that depend on them, counted again; also of those that
-- have ended, which may be done again, too.
WITH counted AS (
    SELECT w.ws_id, array_agg(d.ws_id ORDER BY d.ws_id) AS depends_on, count(*) FILTER (WHERE d.completed_at IS NULL) AS unfinished,
           count(*) FILTER (WHERE d.state = 'skipped') AS skipped,
           count(*) FILTER (WHERE d.state IN ('failed', 'cancelled')) AS dead
      FROM interlock.workstreams w
      JOIN interlock.workflow_links l ON l.source_id = w.ws_id AND l.role = 'depends_on'
      JOIN interlock.workstreams d ON d.ws_id = l.target_id
     WHERE w.run_id = %(run)s AND NOT w.left_out
     GROUP BY w.ws_id
), named AS (
    UPDATE interlock.workstreams w SET depends_on = f.depends_on FROM counted f
     WHERE w.ws_id = f.ws_id AND NOT (w.depends_on <@ f.depends_on AND w.depends_on @> f.depends_on)
)
UPDATE interlock.workstream_counts c
   SET unfinished_dependencies = f.unfinished, skipped_dependencies = f.skipped, dead_dependencies = f.dead
  FROM counted f
 WHERE c.ws_id = f.ws_id
   AND (c.unfinished_dependencies, c.skipped_dependencies, c.dead_dependencies) <> (f.unfinished, f.skipped, f.dead)
