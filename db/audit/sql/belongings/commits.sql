-- Ledger entries, live or archived, whose commit is not the one in their events. Of which instances: as `bodies.sql`.
WITH stands AS (
    SELECT l.ledger_id, l.commit_sha FROM interlock.patch_ledger_entries l
     WHERE l.ledger_id > %(after)s AND l.ledger_id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR l.ledger_id = ANY(%(ids)s))
    UNION ALL
    SELECT r.workflow_id, r.body->>'commit_sha' FROM interlock.archived_records r
     WHERE r.workflow_id > %(after)s AND r.workflow_id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR r.workflow_id = ANY(%(ids)s))
       AND r.kind = 'patch_ledger_entries'
)
SELECT s.ledger_id, format('patch_ledger_entries %%s was changed: its events record another commit', s.ledger_id)
  FROM stands s
 WHERE s.commit_sha IS DISTINCT FROM (
           SELECT t.metadata->>'commit_sha' FROM interlock.every_transition t
            WHERE t.workflow_id = s.ledger_id AND t.metadata->>'commit_sha' IS NOT NULL ORDER BY t.seq DESC LIMIT 1)
