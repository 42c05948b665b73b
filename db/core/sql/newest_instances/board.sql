-- The newest instances of a type, at most %(cards)s of each state with how many there are in it: one look, bounded by %(most)s,
-- because no index has the state, which moves.
WITH newest AS (
    SELECT id, entity_id, project, current_state, error, updated_at
      FROM interlock.workflow_instances
     WHERE workflow_type = %(type)s AND (%(projects)s::text[] IS NULL OR project = ANY (%(projects)s))
     ORDER BY id DESC LIMIT %(most)s
), ranked AS (
    SELECT n.*, row_number() OVER (PARTITION BY current_state ORDER BY id DESC) AS place, count(*) OVER (PARTITION BY current_state) AS many
      FROM newest n WHERE strpos(lower(entity_id), lower(%(words)s)) > 0
)
SELECT id, entity_id, project, current_state, error, updated_at, many FROM ranked WHERE place <= %(cards)s ORDER BY id DESC
