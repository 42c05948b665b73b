-- Claims, live or archived, that are not what the events say which they proved, or what came of them: its task's start, which is
-- asked for together with the claim. Of which instances: as `bodies.sql`; a claim belongs to its task.
WITH claims AS (
    SELECT c.claim_id::text AS number, c.task_id, c.run_id, c.worker_id, c.claimed_at FROM interlock.task_claims c
    UNION ALL
    SELECT r.key, c.task_id, c.run_id, c.worker_id, c.claimed_at
      FROM interlock.archived_records r,
           LATERAL jsonb_to_record(r.body) AS c (task_id uuid, run_id uuid, worker_id uuid, claimed_at timestamptz)
     WHERE r.kind = 'task_claims'
), proven AS (
    SELECT t.workflow_id, t.seq, t.authority, substring(t.proof FROM '^claim:([^ ]*)') AS number,
           CASE WHEN t.request_id = format('interlock:%%s:start', t.proof) THEN t.metadata->>'worker_id' END AS worker
      FROM interlock.every_transition t
     WHERE t.workflow_id > %(after)s AND t.workflow_id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR t.workflow_id = ANY(%(ids)s))
       AND t.proof LIKE 'claim:%%'
)
SELECT p.workflow_id, format('task_claims %%s %%s', p.number, CASE
           WHEN c.number IS NULL THEN format('is missing: it proved event %%s', p.seq)
           ELSE format('was changed: event %%s, which it proved, says otherwise', p.seq) END)
  FROM proven p LEFT JOIN claims c USING (number)
 WHERE (CASE p.authority WHEN 'holder' THEN c.task_id ELSE c.worker_id END, COALESCE(p.worker, c.worker_id::text))
       IS DISTINCT FROM (p.workflow_id, c.worker_id::text)
UNION ALL
SELECT c.task_id, format('task_claims %%s %%s', c.claim_id, CASE
           WHEN r.seq IS NULL THEN 'was added: its task''s start was not asked for'
           ELSE 'was changed: its task''s start, which was asked for with it, says otherwise' END)
  FROM interlock.task_claims c
  JOIN interlock.tasks t USING (task_id)
  LEFT JOIN interlock.trigger_requests r ON r.request_id = format('interlock:claim:%%s:start', c.claim_id)
 WHERE c.task_id > %(after)s AND c.task_id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR c.task_id = ANY(%(ids)s))
   AND CASE WHEN r.seq IS NULL THEN c.claimed_at > (SELECT upto FROM interlock.pruned)
            ELSE (r.workflow_id, r.proof, r.metadata->>'worker_id', r.accepted_at, t.run_id)
                 IS DISTINCT FROM (c.task_id, 'claim:' || c.claim_id, c.worker_id::text, c.claimed_at, c.run_id) END
