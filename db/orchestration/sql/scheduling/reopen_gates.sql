-- Gates that were given up because nothing was left for them to judge, and those given up because of them: a task that was
-- just born has to be judged after all. Whether they can pass now is for `mark_gates_lost` to say.
WITH RECURSIVE found AS (
    SELECT g.gate_id AS id
      FROM unnest(%(born)s::uuid[]) AS born
     CROSS JOIN LATERAL (SELECT target_id FROM interlock.workflow_links WHERE source_id = born AND role = 'gates' OFFSET 0) l
      JOIN interlock.test_gates g ON g.gate_id = l.target_id AND g.lost AND g.state IN ('PENDING', 'BLOCKED')
    UNION
    SELECT g.gate_id
      FROM found
      JOIN interlock.workflow_links l ON l.target_id = found.id AND l.role = 'depends_on'
      JOIN interlock.test_gates g ON g.gate_id = l.source_id AND g.lost AND g.state IN ('PENDING', 'BLOCKED')
)
UPDATE interlock.test_gates g SET lost = false FROM found WHERE g.gate_id = found.id
RETURNING g.gate_id AS id
