-- The first %(most)s projects that have instances, but Interlock's own. PostgreSQL has no skip scan here, and a DISTINCT would read every
-- instance: each step asks the index of names for the next project.
WITH RECURSIVE found AS (
    (SELECT project FROM interlock.workflow_instances ORDER BY project LIMIT 1)
    UNION ALL
    SELECT (SELECT i.project FROM interlock.workflow_instances AS i
             WHERE i.project > f.project ORDER BY i.project LIMIT 1)
      FROM found AS f
     WHERE f.project IS NOT NULL
)
SELECT project FROM found WHERE project NOT LIKE 'interlock:%%' LIMIT %(most)s
