-- Events, and requests that have not ended, whose proof is none: it names what was not there before them, or proves another right
-- (AUTHORITY-8). Of which instances: as `bodies.sql`. An event gets its `position` when it is written, so what it was proven by has
-- an earlier one; times are when transactions began, and may be the other way round by as long as these took (ten minutes: more
-- than any takes). Claims: `claims.sql`.
WITH proven AS (
    SELECT t.workflow_id, format('event %%s', t.seq) AS what, t.seq, t.position, t.workflow_type AS type, t.trigger, t.triggered_by,
           t.request_id, t.authority, t.proof,
           -- An override and a migration are judged by who is an operator when they are made; anything else when it is accepted.
           CASE WHEN t.metadata ? 'override' OR t.trigger = 'definition.migrate' THEN t.created_at END AS judged_at
      FROM interlock.every_transition t
     WHERE t.workflow_id > %(after)s AND t.workflow_id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR t.workflow_id = ANY(%(ids)s))
       AND t.proof IS NOT NULL
    UNION ALL
    SELECT r.workflow_id, format('trigger_requests %%s', r.request_id), i.version + 1, 9223372036854775807, i.workflow_type, r.trigger,
           r.triggered_by, r.request_id, r.authority, r.proof, NULL
      FROM interlock.trigger_requests r JOIN interlock.workflow_instances i ON i.id = r.workflow_id
     WHERE r.workflow_id > %(after)s AND r.workflow_id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR r.workflow_id = ANY(%(ids)s))
       AND r.proof IS NOT NULL AND r.finished_at IS NULL
), parted AS (  -- what proves the right itself, and the token by which it was asked for
    SELECT p.*, o.own, split_part(o.own, ':', 1) AS kind, split_part(o.own, ':', 2) AS said, p.proof LIKE '%%token:%%' AS by_token
      FROM proven p
     CROSS JOIN LATERAL (SELECT CASE WHEN p.proof LIKE '%%token:%%' THEN interlock.without_token(p.proof) ELSE p.proof END) AS o (own)
), named AS (
    SELECT p.*, substring(p.said FROM '^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$')::uuid AS id,
           substring(p.said FROM '^[0-9]{1,18}$')::bigint AS number
      FROM parted p
)
SELECT n.workflow_id, format('%%s: its proof %%s is none: %%s', n.what, n.proof, w.why)
  FROM named n CROSS JOIN LATERAL (
    SELECT CASE
        WHEN n.own IS NULL AND (n.authority IN ('anyone', 'decider') OR n.authority = 'holder' AND n.type = 'api_token') THEN NULL
        WHEN n.kind = 'approval' THEN CASE WHEN NOT EXISTS (
            SELECT FROM interlock.every_instance a JOIN interlock.every_transition d ON d.workflow_id = a.id
             WHERE a.id = n.id AND a.workflow_type = 'approval' AND d.to_state = 'approved' AND d.position < n.position
               AND (a.context->>'subject_id', a.context->>'trigger', a.context->>'request_id')
                   = (n.workflow_id::text, n.trigger, n.request_id)) THEN 'no such approval was given before' END
        WHEN n.authority = 'anyone' AND n.kind = 'schedule' THEN CASE WHEN NOT EXISTS (
            SELECT FROM interlock.every_instance s
             WHERE s.id = n.id AND s.workflow_type = 'schedule' AND s.created_by = n.triggered_by
               AND (s.context->'does'->'fire'->>'instance', s.context->'does'->'fire'->>'trigger')
                   = (n.workflow_id::text, n.trigger)
               AND starts_with(n.request_id, format('interlock:schedule:%%s:', s.id)))
            THEN 'no such schedule fires this' END
        WHEN n.authority = 'operator' AND n.kind = 'grant' THEN CASE WHEN NOT EXISTS (
            SELECT FROM interlock.operators o
              JOIN interlock.workflow_transitions g ON g.workflow_id = o.grant_id AND g.seq = 1
             WHERE o.grant_id = n.id AND o.name = n.triggered_by AND g.position < n.position
               AND COALESCE(n.judged_at, (SELECT r.accepted_at FROM interlock.trigger_requests r WHERE r.request_id = n.request_id),
                            '-infinity')
                   < COALESCE(LEAST(o.until, o.ended_at) + interval '10 minutes', 'infinity'))
            THEN 'no such grant of this operator was in force' END
        WHEN n.authority = 'effect' AND n.kind = 'lease' THEN CASE WHEN NOT EXISTS (
            SELECT FROM interlock.effects e
             WHERE e.id = n.id AND e.workflow_id = n.workflow_id
               AND e.token >= substring(split_part(n.proof, ':', 3) FROM '^[0-9]{1,18}$')::bigint
               AND (e.done_trigger IS NULL OR n.trigger IN (e.done_trigger, e.failed_trigger)))
            -- Its effect's keeping time may be over.
            AND (SELECT r.accepted_at FROM interlock.trigger_requests r WHERE r.request_id = n.request_id)
                > (SELECT p.effects_upto + interval '10 minutes' FROM interlock.pruned p)
            THEN 'no effect of this instance was under such a lease' END
        WHEN n.authority = 'machinery' AND n.kind = 'event' THEN CASE WHEN NOT EXISTS (
            SELECT FROM interlock.every_transition t WHERE t.id = n.id AND t.position < n.position)
            THEN 'there was no such event before' END
        WHEN n.authority = 'machinery' AND n.kind = 'run' THEN CASE WHEN NOT EXISTS (
            SELECT FROM interlock.every_instance i WHERE i.id = n.id AND i.workflow_type = 'run') THEN 'there is no such run' END
        WHEN n.authority = 'machinery' AND n.kind = 'state' THEN
            CASE WHEN (n.number < n.seq) IS NOT TRUE THEN 'the instance was not yet at that version' END
        WHEN n.authority = 'machinery' AND n.kind = 'worker' THEN
            CASE WHEN n.id IS DISTINCT FROM n.workflow_id THEN 'that is another' END
        WHEN n.authority = 'machinery' AND n.own = 'refusal' THEN
            CASE WHEN n.type <> 'refusal_log' THEN 'it is of logs of refusals' END
        WHEN n.authority = 'holder' AND n.own = 'itself' THEN
            CASE WHEN n.type NOT IN ('worker', 'uet_worker', 'supervised_worker') AND NOT (n.type = 'job' AND n.by_token)
                 THEN 'it is of workers' END
        WHEN n.authority IN ('holder', 'machinery') AND n.kind = 'claim' THEN NULL
        ELSE format('it proves no %%s', n.authority) END
    UNION ALL
    SELECT 'no such token was in force that allows this' WHERE n.by_token AND NOT EXISTS (  -- as `accept_by_token`
        SELECT FROM interlock.api_tokens a
          JOIN interlock.workflow_transitions issued ON issued.workflow_id = a.token_id AND issued.seq = 1
          JOIN interlock.every_instance i ON i.id = n.workflow_id
         WHERE a.token_id = interlock.token_of(n.proof) AND a.name = n.triggered_by AND issued.position < n.position
           AND a.role <> 'read-only' AND (n.authority NOT IN ('operator', 'machinery') OR a.role IN ('operator', 'admin'))
           AND (n.authority <> 'machinery' OR n.type IN ('supervised_worker', 'job'))
           AND CASE WHEN n.authority = 'holder' AND n.own IS NULL THEN interlock.not_its_own(a, n.workflow_id)
                    ELSE interlock.not_covered(a, i.project, n.type, n.workflow_id) END IS NULL
           AND COALESCE(n.judged_at, (SELECT r.accepted_at FROM interlock.trigger_requests r WHERE r.request_id = n.request_id),
                        '-infinity')
               < COALESCE(LEAST(a.expires_at, a.ended_at) + interval '10 minutes', 'infinity'))) AS w (why)
 WHERE w.why IS NOT NULL
UNION ALL
SELECT i.id, format('its birth''s proof %%s is none: no such token was in force that allows this', i.born_proof)
  FROM interlock.every_instance i
 WHERE i.id > %(after)s AND i.id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR i.id = ANY(%(ids)s)) AND i.born_proof IS NOT NULL
   AND NOT EXISTS (  -- as `born_by_token`
        SELECT FROM interlock.api_tokens a
         WHERE a.token_id = interlock.token_of(i.born_proof) AND a.name = i.created_by AND a.role <> 'read-only'
           AND a.issued_at < i.created_at + interval '10 minutes'
           AND i.created_at < COALESCE(LEAST(a.expires_at, a.ended_at) + interval '10 minutes', 'infinity')
           AND (interlock.not_covered(a, i.project, i.workflow_type, i.id) IS NULL OR i.workflow_type = 'api_token' AND a.role = 'admin'))
