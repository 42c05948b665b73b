-- As recount_born_tasks, for workstreams and those they depend on.
WITH waits AS MATERIALIZED (
    SELECT c.ws_id, l.target_id,
           CASE WHEN d.completed_at IS NOT NULL THEN d.state END AS ended
      FROM interlock.workstream_counts c
     CROSS JOIN LATERAL (SELECT target_id FROM interlock.workflow_links
                          WHERE source_id = c.ws_id AND role = 'depends_on' OFFSET 0) l
      JOIN interlock.workstreams d ON d.ws_id = l.target_id
     WHERE c.ws_id = ANY(%(born)s::uuid[]) AND c.unfinished_dependencies > 0
), signalled AS MATERIALIZED (
    SELECT entity_id FROM interlock.run_signals
     WHERE entity_id IN (SELECT target_id FROM waits WHERE ended IS NOT NULL) FOR SHARE
), counted AS (
    SELECT ws_id, CASE WHEN target_id <> ALL(%(ending)s::uuid[])
                        AND target_id NOT IN (SELECT entity_id FROM signalled) THEN ended END AS ended
      FROM waits
)
UPDATE interlock.workstream_counts c
   SET unfinished_dependencies = f.unfinished, skipped_dependencies = f.skipped, dead_dependencies = f.dead
  FROM (SELECT ws_id, count(*) FILTER (WHERE ended IS NULL) AS unfinished,
               count(*) FILTER (WHERE ended = 'skipped') AS skipped,
               count(*) FILTER (WHERE ended IN ('failed', 'cancelled')) AS dead
          FROM counted GROUP BY ws_id) f
 WHERE c.ws_id = f.ws_id
