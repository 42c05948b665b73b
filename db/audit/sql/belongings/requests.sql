-- Requests that do not say what their event says, or have none, and events whose request was deleted before its time.
-- Of which instances: as `bodies.sql`; archived ones have no requests.
WITH events AS (
    SELECT t.* FROM interlock.workflow_transitions t
     WHERE t.workflow_id > %(after)s AND t.workflow_id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR t.workflow_id = ANY(%(ids)s))
       AND t.trigger <> 'definition.migrate'
), asked AS (
    SELECT r.* FROM interlock.trigger_requests r
     WHERE r.workflow_id > %(after)s AND r.workflow_id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR r.workflow_id = ANY(%(ids)s))
)
SELECT workflow_id, CASE
           WHEN r.seq IS NULL THEN format('trigger_requests %%s is missing: event %%s was asked for by it', request_id, e.seq)
           WHEN e.seq IS NULL THEN format('trigger_requests %%s was changed: no event is what it says', request_id)
           ELSE format('trigger_requests %%s was changed: event %%s says otherwise', request_id, e.seq) END
  FROM events e FULL JOIN asked r USING (workflow_id, request_id)
 WHERE CASE
           WHEN r.seq IS NULL THEN e.created_at > (SELECT upto FROM interlock.pruned)
           WHEN e.seq IS NULL THEN r.status = 'applied'
           ELSE (e.trigger, e.triggered_by, e.authority, e.proof, e.login, e.metadata ? 'override')
                IS DISTINCT FROM (r.trigger, r.triggered_by, r.authority, r.proof, r.login, r.origin = 'override')
                OR (r.status, r.result->>'event_id', r.result->>'seq', r.result->>'from', r.result->>'to')
                IS DISTINCT FROM ('applied', e.id::text, e.seq::text, e.from_state, e.to_state)
                OR r.finished_at > e.created_at
       END
