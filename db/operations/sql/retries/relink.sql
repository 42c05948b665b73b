-- Whatever else waits for these now waits for what takes their place; not for what succeeded, which stands; but a
-- gate that passed judges again what is not completed (GATE-7). What judged a patch stays linked to it, and what was left
-- out waits for nothing.
WITH made AS (
    SELECT m.old, m.new, i.current_state IN ('completed', 'PASSED') AS succeeded
      FROM unnest(%(olds)s::uuid[], %(news)s::uuid[]) AS m (old, new) JOIN interlock.workflow_instances i ON i.id = m.old
), gone AS (
    DELETE FROM interlock.workflow_links l USING made
     WHERE l.target_id = made.old AND l.role IN ('depends_on', 'gates', 'blocked_by_gates')
       AND l.source_id <> ALL(%(olds)s::uuid[])
       AND (NOT made.succeeded OR l.role = 'gates' AND EXISTS (
            SELECT FROM interlock.tasks t WHERE t.task_id = l.source_id AND t.state <> 'completed'))
       AND NOT EXISTS (SELECT FROM interlock.patch_ledger_entries WHERE ledger_id = l.source_id)
       AND NOT EXISTS (SELECT FROM interlock.workstreams w WHERE w.ws_id = l.source_id AND w.left_out)
       AND NOT EXISTS (SELECT FROM interlock.tasks t WHERE t.task_id = l.source_id AND t.left_out)
    RETURNING l.source_id, l.role, l.inverse, made.new
)
INSERT INTO interlock.workflow_links (source_id, role, inverse, target_id) SELECT * FROM gone ON CONFLICT DO NOTHING
