-- Of heads given (from a file), those that history does not tell.
SELECT h.workflow_id, h.seq, COALESCE(t.hash, birth.hash) IS NULL AS gone
  FROM unnest(%(ids)s::uuid[], %(seqs)s::integer[], %(hashes)s::bytea[]) AS h (workflow_id, seq, hash)
  LEFT JOIN interlock.every_transition t ON t.workflow_id = h.workflow_id AND t.seq = h.seq
  LEFT JOIN interlock.every_birth birth ON birth.id = h.workflow_id AND h.seq = 0
 WHERE COALESCE(t.hash, birth.hash) IS DISTINCT FROM h.hash
