-- Of events that were told elsewhere, those that history does not have.
SELECT g.nth
  FROM unnest(%(ids)s::uuid[], %(seqs)s::integer[], %(names)s::text[]) WITH ORDINALITY AS g (workflow_id, seq, name, nth)
  LEFT JOIN interlock.every_transition t ON t.workflow_id = g.workflow_id AND t.seq = g.seq
 WHERE t.id IS NULL OR interlock.event_name(t.id) <> g.name
 ORDER BY g.nth
