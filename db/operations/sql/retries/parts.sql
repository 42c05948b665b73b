-- The present tasks and gates of these workstreams, gates first: none that another one replaced, and no task that an operator left
-- out. `reruns` is the number that its plan gave a gate; `was` are the gate itself and all that it took the place of.
WITH RECURSIVE chain AS (
    SELECT g.gate_id AS now, g.gate_id AS was, g.reruns_left
      FROM interlock.test_gates g
     WHERE g.workstream_id = ANY(%(ids)s)
       AND NOT EXISTS (SELECT FROM interlock.workflow_links l JOIN interlock.test_gates n ON n.gate_id = l.source_id
                        WHERE l.target_id = g.gate_id AND l.role = 'retry_of' AND n.run_id = g.run_id
                          AND (EXISTS (SELECT FROM interlock.commands WHERE workflow_id = n.gate_id)  -- no stranger's has one
                               OR NOT EXISTS (SELECT FROM interlock.commands WHERE workflow_id = g.gate_id)))
    UNION
    SELECT c.now, o.gate_id, o.reruns_left
      FROM chain c
      JOIN interlock.workflow_links l ON l.source_id = c.was AND l.role = 'retry_of'
      JOIN interlock.test_gates o ON o.gate_id = l.target_id AND o.workstream_id = ANY(%(ids)s)
)
SELECT 'test_gate' AS kind, now AS id, array_agg(was) AS was, max(reruns_left) AS reruns FROM chain GROUP BY now
UNION ALL
SELECT 'task', t.task_id, ARRAY[t.task_id], 0 FROM interlock.tasks t WHERE t.workstream_id = ANY(%(ids)s) AND NOT t.left_out
 ORDER BY 1 DESC, 2
