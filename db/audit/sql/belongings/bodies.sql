-- Rows of `commands`, `plans` and `patches`, live or archived, that are not what an instance was born with; and such rows
-- that no birth names. Of the instances after one, up to one; with `ids`, of those among them.
WITH asked AS (
    SELECT i.id, i.bodies, i.context FROM interlock.every_instance i
     WHERE i.id > %(after)s AND i.id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR i.id = ANY(%(ids)s))
), expected AS (
    SELECT a.id, b.kind, b.sha256,
           CASE WHEN b.kind = 'patches' THEN COALESCE(  -- as a ledger entry's context names it, or a task's command
               a.context->>'patch_id', (SELECT c.patch_id FROM interlock.commands c WHERE c.workflow_id = a.id),
               (SELECT r.body->>'patch_id' FROM interlock.archived_records r
                 WHERE r.kind = 'commands' AND r.key = a.id::text), '?')
           ELSE a.id::text END AS key
      FROM asked a CROSS JOIN LATERAL jsonb_each_text(a.bodies) AS b (kind, sha256)
)
SELECT t.id, t.kind || ' ' || t.key
             || CASE WHEN stands.body IS NULL THEN ' is missing' ELSE ' was changed: the birth has another digest' END
  FROM expected t
  LEFT JOIN LATERAL (
        SELECT to_jsonb(c) AS body FROM interlock.commands c WHERE t.kind = 'commands' AND c.workflow_id = t.id
        UNION ALL SELECT to_jsonb(p) FROM interlock.plans p WHERE t.kind = 'plans' AND p.run_id = t.id
        UNION ALL SELECT to_jsonb(p) FROM interlock.patches p WHERE t.kind = 'patches' AND p.patch_id = t.key
        UNION ALL SELECT r.body FROM interlock.archived_records r WHERE r.kind = t.kind AND r.key = t.key) stands ON true
 WHERE t.sha256 IS DISTINCT FROM interlock.body_digest(stands.body)
UNION ALL
SELECT a.id, added.kind || ' ' || a.id || ' was added: the birth has none'
  FROM asked a
  JOIN LATERAL (
        SELECT 'commands' AS kind FROM interlock.commands c WHERE c.workflow_id = a.id
        UNION ALL SELECT 'plans' FROM interlock.plans p WHERE p.run_id = a.id
        UNION ALL SELECT r.kind FROM interlock.archived_records r
                   WHERE r.workflow_id = a.id AND r.kind IN ('commands', 'plans')) added ON true
 WHERE (a.bodies ? added.kind) IS NOT TRUE
