-- Of the newest events before a place, live and archived, those that match. It reads a bounded number of them, whatever the
-- filters are, by the index on event ids, which grow with time. MATERIALIZED: the filters must not reach into the look, or
-- PostgreSQL would read on until enough rows match.
WITH looked AS MATERIALIZED (
    SELECT * FROM (
        (SELECT t.id, t.workflow_id, t.seq, t.workflow_type, t.from_state, t.to_state, t.trigger, t.triggered_by, t.authority,
                t.severity, t.metadata->>'reason' AS reason, t.created_at
           FROM interlock.workflow_transitions t
          WHERE t.id < %(before)s AND t.id >= %(since)s ORDER BY t.id DESC LIMIT %(look)s)
        UNION ALL
        (SELECT t.id, t.workflow_id, t.seq, t.workflow_type, t.from_state, t.to_state, t.trigger, t.triggered_by, t.authority,
                t.severity, t.metadata->>'reason' AS reason, t.created_at
           FROM interlock.archived_transitions t
          WHERE t.id < %(before)s AND t.id >= %(since)s ORDER BY t.id DESC LIMIT %(look)s)
    ) either ORDER BY id DESC LIMIT %(look)s
), found AS MATERIALIZED (
    SELECT l.* FROM looked l
     WHERE (%(type)s::text IS NULL OR l.workflow_type = %(type)s)
       AND (%(trigger)s::text IS NULL OR l.trigger = %(trigger)s)
       AND (%(state)s::text IS NULL OR l.to_state = %(state)s)
       AND (%(by)s::text IS NULL OR l.triggered_by = %(by)s)
), named AS (
    SELECT f.*, i.entity_id, i.project
      FROM found f
     CROSS JOIN LATERAL (SELECT n.entity_id, n.project FROM interlock.workflow_instances n WHERE n.id = f.workflow_id
                         UNION ALL
                         SELECT a.entity_id, a.project FROM interlock.archived_instances a WHERE a.id = f.workflow_id) i
     WHERE %(projects)s::text[] IS NULL OR i.project = ANY(%(projects)s)
     ORDER BY f.id DESC LIMIT %(limit)s
)
SELECT n.*, end_of.looked, end_of.oldest
  FROM (SELECT (SELECT count(*) FROM looked) AS looked, (SELECT id FROM looked ORDER BY id LIMIT 1) AS oldest) end_of
  LEFT JOIN named n ON true
 ORDER BY n.id DESC
