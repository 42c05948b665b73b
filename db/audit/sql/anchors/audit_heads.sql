-- Heads in anchors that history no longer has: the event is gone, or is another one.
SELECT h.workflow_id, h.seq, h.number, t.hash IS NULL AS gone
  FROM interlock.anchor_heads h
  LEFT JOIN interlock.every_transition t ON t.workflow_id = h.workflow_id AND t.seq = h.seq
 WHERE h.seq > 0 AND t.hash IS DISTINCT FROM h.hash
UNION ALL
SELECT h.workflow_id, h.seq, h.number, i.id IS NULL
  FROM interlock.anchor_heads h
  LEFT JOIN interlock.every_birth i ON i.id = h.workflow_id
 WHERE h.seq = 0 AND (i.id IS NULL OR i.hash <> h.hash)
