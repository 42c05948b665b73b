-- Instances that a text names while somebody types it: by id, by the whole name, or among the newest %(most)s by a part of it.
WITH whole AS (
    SELECT id, workflow_type, entity_id, current_state, project, 0 AS rank FROM interlock.workflow_instances
     WHERE id = %(id)s::uuid OR entity_id = %(words)s LIMIT 50
), newest AS MATERIALIZED (
    SELECT id, workflow_type, entity_id, current_state, project, 1 AS rank FROM interlock.workflow_instances ORDER BY id DESC LIMIT %(most)s
)
SELECT DISTINCT ON (rank, id) id, workflow_type, entity_id, current_state, project
  FROM (SELECT * FROM whole
        UNION ALL
        SELECT * FROM newest WHERE strpos(lower(workflow_type || '/' || entity_id), lower(%(words)s)) > 0
                               AND id NOT IN (SELECT id FROM whole)) AS found
 WHERE %(projects)s::text[] IS NULL OR project = ANY (%(projects)s)
 ORDER BY rank, id DESC LIMIT %(limit)s
