-- Accept requests: durable once this commits. One whose request_id is known already is left as it is.
-- They are numbered in the caller's order and written in that of their ids: callers who fire the same requests, each in
-- an order of its own, wait for one another in a queue, never in a circle.
INSERT INTO interlock.trigger_requests (seq, request_id, fingerprint, workflow_id, trigger, triggered_by, metadata, origin,
                              bound_version, status, not_before, trace) OVERRIDING SYSTEM VALUE
SELECT n.seq, n.request_id, decode(n.fingerprint, 'hex'), n.workflow_id, n.trigger, n.triggered_by,
       COALESCE(n.metadata, '{}'), n.origin, n.bound_version,
       CASE WHEN due.at > now() THEN 'scheduled' ELSE 'pending' END, due.at, n.trace
  FROM (SELECT nextval('interlock.trigger_requests_seq_seq') AS seq, r.*
          FROM json_to_recordset(%(rows)s::json) AS r (
                   request_id text, fingerprint text, workflow_id uuid, trigger text, triggered_by text, metadata jsonb,
                   origin text, bound_version integer, not_before timestamptz, delay_seconds double precision,
                   trace text)) n,
       LATERAL (SELECT GREATEST(now(), COALESCE(n.not_before, now() + make_interval(secs => n.delay_seconds), now()))
                       AS at) due
 ORDER BY n.request_id COLLATE "C", n.seq
    ON CONFLICT (request_id) DO NOTHING
RETURNING request_id, seq, partition, workflow_id, trigger, status
