-- Since when an instance stands in its state: its last move, or its birth. A migration that kept the state is no move.
SELECT extract(epoch FROM clock_timestamp() - COALESCE(
           (SELECT t.created_at FROM interlock.workflow_transitions t
             WHERE t.workflow_id = i.id AND (t.trigger <> 'definition.migrate' OR t.from_state <> t.to_state)
             ORDER BY t.seq DESC LIMIT 1),
           i.created_at))
  FROM interlock.workflow_instances i WHERE i.id = %(id)s
