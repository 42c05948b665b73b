-- Tasks added to a running run: what they depend on may have ended, and its signal may have been taken, before they came.
-- Counts their links anew, without the ends whose signals are still to be counted: `ending` are those of this pass, and
-- those in `run_signals` come with a later one. FOR SHARE waits for another run's pass that takes such a signal just now,
-- and may have missed these links. OFFSET 0: see release_tasks.
WITH waits AS MATERIALIZED (
    SELECT t.task_id, l.target_id,
           CASE WHEN d.state = 'completed' OR g.state = 'PASSED' THEN true
                WHEN d.state IN ('failed', 'cancelled') OR g.lost THEN false END AS well  -- NULL: it has not ended
      FROM interlock.tasks t
     CROSS JOIN LATERAL (SELECT target_id FROM interlock.workflow_links
                          WHERE source_id = t.task_id AND role IN ('depends_on', 'blocked_by_gates') OFFSET 0) l
      LEFT JOIN interlock.tasks d ON d.task_id = l.target_id
      LEFT JOIN interlock.test_gates g ON g.gate_id = l.target_id
     WHERE t.task_id = ANY(%(born)s::uuid[]) AND t.unmet > 0
), signalled AS MATERIALIZED (
    SELECT entity_id FROM interlock.run_signals
     WHERE entity_id IN (SELECT target_id FROM waits WHERE well IS NOT NULL) FOR SHARE
), counted AS (
    SELECT task_id, CASE WHEN target_id <> ALL(%(ending)s::uuid[])
                          AND target_id NOT IN (SELECT entity_id FROM signalled) THEN well END AS well
      FROM waits
)
UPDATE interlock.tasks t SET unmet = f.unmet, dead = f.dead
  FROM (SELECT task_id, count(*) FILTER (WHERE well IS NOT TRUE) AS unmet, count(*) FILTER (WHERE NOT well) AS dead
          FROM counted GROUP BY task_id) f
 WHERE t.task_id = f.task_id AND (t.unmet <> f.unmet OR t.dead <> f.dead)
