-- Uses of what is deprecated, in the round that made them: each lane has rows of its own, and its lock is held.
INSERT INTO deprecation_uses (deprecation_id, lane, uses, last_used_at)
SELECT n.deprecation_id, n.lane, n.uses, now()
  FROM json_to_recordset(%(rows)s::json) AS n (deprecation_id bigint, lane smallint, uses bigint)
    ON CONFLICT (deprecation_id, lane)
    DO UPDATE SET uses = deprecation_uses.uses + EXCLUDED.uses, last_used_at = EXCLUDED.last_used_at
