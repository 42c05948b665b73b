-- What the scheduler cancelled or skipped because of these workstreams, directly or indirectly; and nothing else that
-- will never be completed stands in its way. `dead` are these and all that may be done again with them.
WITH RECURSIVE dead AS (
    SELECT unnest(%(ids)s::uuid[]) AS id
    UNION
    SELECT w.ws_id
      FROM dead
      JOIN interlock.workflow_links l ON l.target_id = dead.id AND l.role = 'depends_on'
      JOIN interlock.workstreams w ON w.ws_id = l.source_id AND w.state IN ('cancelled', 'skipped') AND NOT w.left_out
      JOIN interlock.workflow_instances i ON i.id = w.ws_id
      JOIN interlock.workflow_transitions e ON e.workflow_id = w.ws_id AND e.seq = i.version
     WHERE e.trigger IN ('cancel', 'skip') AND e.triggered_by = 'scheduler'
)
SELECT dead.id, COALESCE((SELECT array_agg(l.target_id)
                            FROM interlock.workflow_links l JOIN interlock.workstreams d ON d.ws_id = l.target_id
                           WHERE l.source_id = dead.id AND l.role = 'depends_on'
                             AND d.state IN ('failed', 'cancelled', 'skipped')), '{}') AS lacks
  FROM dead
