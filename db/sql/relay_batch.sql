-- Events behind the cursor, in commit order. Only those below the oldest transaction still running: nothing can appear
-- behind them any more, which a cursor on `position` alone cannot promise.
SELECT t.xid::text::bigint AS xid, t.position, t.id, t.workflow_id, t.seq, t.from_state, t.to_state, t.trigger,
       t.triggered_by, t.request_id, t.severity, t.metadata, t.created_at, i.workflow_type, i.entity_id, i.project_id
  FROM workflow_transitions t
  JOIN workflow_instances i ON i.id = t.workflow_id
 WHERE (t.xid, t.position) > (%(xid)s::text::xid8, %(position)s)
   AND t.xid < pg_snapshot_xmin(pg_current_snapshot())
 ORDER BY t.xid, t.position
 LIMIT %(limit)s
