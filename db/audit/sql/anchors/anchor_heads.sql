-- The heads of every instance that no anchor has seen as it stands now, also of those that moved and were archived since the
-- last one (a day before it, for transactions that were long). One whose newest event is missing is left out: that is for
-- the audit to say.
INSERT INTO interlock.anchor_heads (workflow_id, seq, hash, number)
SELECT i.id, i.version, CASE i.version WHEN 0 THEN interlock.birth_hash(i) ELSE t.hash END, %(number)s
  FROM interlock.workflow_instances i
  LEFT JOIN interlock.workflow_transitions t ON t.workflow_id = i.id AND t.seq = i.version
 WHERE (i.version = 0 OR t.hash IS NOT NULL)
   AND NOT EXISTS (SELECT FROM interlock.anchor_heads h WHERE h.workflow_id = i.id AND h.seq = i.version)
UNION ALL
SELECT i.id, i.version, t.hash, %(number)s
  FROM interlock.archived_instances i
  JOIN interlock.archived_transitions t ON t.workflow_id = i.id AND t.seq = i.version
 WHERE i.archived_at > COALESCE((SELECT max(made_at) FROM interlock.anchors), '-infinity') - interval '1 day'
   AND NOT EXISTS (SELECT FROM interlock.anchor_heads h WHERE h.workflow_id = i.id AND h.seq = i.version)
