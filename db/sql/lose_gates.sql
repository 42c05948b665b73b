-- Gates that failed for good, and all that wait for them, however far: none of these will ever pass.
WITH RECURSIVE lost AS (
    SELECT unnest(%(ids)s::uuid[]) AS id
    UNION
    SELECT l.source_id FROM lost JOIN workflow_links l ON l.target_id = lost.id AND l.role = 'depends_on'
)
UPDATE test_gates g SET lost = true FROM lost WHERE g.gate_id = lost.id AND NOT g.lost
RETURNING g.gate_id AS id
