-- Gates that can never pass any more, and all that wait for them, however far: those that failed for good, those of
-- workstreams that ended before they did, those that nothing is left for to judge. A new gate may come after
-- the signal for that: its workstream had ended, or a gate it depends on was lost before.
WITH RECURSIVE never AS (
    SELECT unnest(%(failed)s::uuid[]) AS id
    UNION
    SELECT gate_id FROM interlock.test_gates WHERE workstream_id = ANY(%(ended)s::uuid[]) AND state IN ('PENDING', 'BLOCKED')
    UNION
    SELECT g.gate_id FROM interlock.test_gates g JOIN interlock.workstreams w ON w.ws_id = g.workstream_id
     WHERE g.gate_id = ANY(%(moved)s::uuid[]) AND g.state IN ('PENDING', 'BLOCKED', 'CANCELLED')
       AND (g.state = 'CANCELLED' OR w.completed_at IS NOT NULL
            OR EXISTS (SELECT FROM interlock.workflow_links l JOIN interlock.test_gates o ON o.gate_id = l.target_id
                        WHERE l.source_id = g.gate_id AND l.role = 'depends_on' AND o.lost))
    UNION
    SELECT g.gate_id FROM interlock.test_gates g
     WHERE g.gate_id IN (SELECT unnest(%(moved)s::uuid[])
                         UNION
                         SELECT l.target_id FROM interlock.workflow_links l
                          WHERE l.source_id = ANY(%(worked)s::uuid[]) AND l.role = 'gates')
       AND g.moment = 'task' AND g.state IN ('PENDING', 'BLOCKED')
       AND NOT EXISTS (SELECT FROM interlock.workflow_links l JOIN interlock.tasks t ON t.task_id = l.source_id
                        WHERE l.target_id = g.gate_id AND l.role = 'gates'
                          AND t.completed_at IS NULL)
), lost AS (
    SELECT id FROM never
    UNION
    SELECT l.source_id FROM lost JOIN interlock.workflow_links l ON l.target_id = lost.id AND l.role = 'depends_on'
)
UPDATE interlock.test_gates g SET lost = true FROM lost WHERE g.gate_id = lost.id AND NOT g.lost
RETURNING g.gate_id AS id
