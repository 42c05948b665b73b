-- Uses of what is deprecated, in the round that made them: each partition has rows of its own, and its lock is held.
INSERT INTO interlock.deprecation_uses (deprecation_id, partition, uses, last_used_at)
SELECT n.deprecation_id, n.partition, n.uses, now()
  FROM json_to_recordset(%(rows)s::json) AS n (deprecation_id bigint, partition smallint, uses bigint)
    ON CONFLICT (deprecation_id, partition)
    DO UPDATE SET uses = deprecation_uses.uses + EXCLUDED.uses, last_used_at = EXCLUDED.last_used_at
