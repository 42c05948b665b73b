-- Requests that do not say what their event says, or have none, and events whose request, or a vote that they count, was deleted
-- before its time. Of which instances: as `bodies.sql`; archived ones have no requests.
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
           WHEN e.seq IS NULL THEN r.status = 'applied' AND NOT EXISTS (  -- a vote: the event that ended it has who voted
                SELECT FROM interlock.workflow_transitions d
                 WHERE d.id = interlock.event_of(r.result) AND d.workflow_id = r.workflow_id AND d.trigger = r.trigger
                   AND d.metadata->'votes' ? r.triggered_by)
           ELSE (e.trigger, e.triggered_by, e.authority, e.proof, e.login, e.metadata ? 'override')
                IS DISTINCT FROM (r.trigger, r.triggered_by, r.authority, r.proof, r.login, r.origin = 'override')
                OR (r.status, r.result->>'event_id', r.result->>'seq', r.result->>'from', r.result->>'to')
                IS DISTINCT FROM ('applied', e.id::text, e.seq::text, e.from_state, e.to_state)
                OR r.finished_at > e.created_at
       END
UNION ALL
SELECT e.workflow_id, format('trigger_requests of %%s is missing, or was changed: event %%s counts the vote', v.voter, e.seq)
  FROM interlock.workflow_transitions e CROSS JOIN LATERAL jsonb_array_elements_text(
           CASE jsonb_typeof(e.metadata->'votes') WHEN 'array' THEN e.metadata->'votes' ELSE '[]' END) AS v (voter)
 WHERE e.workflow_id > %(after)s AND e.workflow_id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR e.workflow_id = ANY(%(ids)s))
   AND e.workflow_type = 'approval' AND e.to_state = 'approved' AND e.created_at > (SELECT upto FROM interlock.pruned)
   AND NOT EXISTS (SELECT FROM interlock.trigger_requests r
                    WHERE (r.workflow_id, r.trigger, r.triggered_by, r.status) = (e.workflow_id, e.trigger, v.voter, 'applied')
                      AND interlock.event_of(r.result) = e.id)
