-- What stands in the way of validating a workstream by hand: tasks that have not ended, patches open or taken back.
SELECT (SELECT count(*) FROM interlock.tasks t WHERE t.workstream_id = w.ws_id
           AND t.state NOT IN ('completed', 'failed', 'cancelled')) AS unended,
       (SELECT array_agg(i.entity_id::text ORDER BY i.entity_id) FROM interlock.patch_ledger_entries p JOIN interlock.workflow_instances i ON i.id = p.ledger_id
         WHERE p.workstream_id = w.ws_id AND p.state <> 'committed') AS patches
  FROM interlock.workstreams w WHERE w.ws_id = %(id)s
