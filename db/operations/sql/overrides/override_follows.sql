-- What this transaction did beside the operator's own moves: other moves, claims that no longer count, effects asked for.
SELECT line FROM (
    SELECT 1 AS kind, t.position AS place,
           format('%%s/%%s: %%s → %%s (%%s)%%s', t.workflow_type, i.entity_id, t.from_state, t.to_state, t.trigger,
                  COALESCE(': ' || left(t.metadata->>'reason', 200), '')) AS line
      FROM interlock.workflow_transitions t JOIN interlock.workflow_instances i ON i.id = t.workflow_id
     WHERE t.xid = pg_current_xact_id() AND NOT t.metadata ? 'override'
    UNION ALL
    SELECT 0, c.claim_id,
           format('claim %%s of worker %%s on %%s no longer counts: its command is stopped, its report is refused',
                  c.claim_id, w.name, i.entity_id)
      FROM interlock.task_claims c JOIN interlock.workers w USING (worker_id) JOIN interlock.workflow_instances i ON i.id = c.task_id
     WHERE c.run_id = %(run)s AND c.revoked_at = now()
    UNION ALL
    SELECT 2, 0, format('effect %%s on %%s/%%s', e.name, i.workflow_type, i.entity_id)
      FROM interlock.effects e JOIN interlock.workflow_instances i ON i.id = e.workflow_id
     WHERE e.created_at = now() AND e.status = 'pending' AND (i.context->>'run_id' = %(run)s::uuid::text OR i.id = %(run)s)
) lines ORDER BY kind, place, line
