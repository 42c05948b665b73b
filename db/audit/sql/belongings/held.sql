-- Requests that approvals hold otherwise than these say: each waits while its approval is pending, and is released by no other than
-- its own, once that was given (APPROVAL-1). Approvals of which what they hold is gone, or of other terms than were asked for
-- (APPROVAL-7). Moves of approvals by who may not make them, and decisions that too few took or that say otherwise than was decided
-- (APPROVAL-2, APPROVAL-3, APPROVAL-6). Of which instances: as `bodies.sql`; archived ones have no such requests.
SELECT r.workflow_id, format('trigger_requests %%s was changed: %%s', r.request_id,
           CASE WHEN r.held_by IS NULL THEN 'no approval released it'
                ELSE format('the approval %%s, which is %%s, says otherwise', r.held_by, COALESCE(a.current_state, 'gone')) END)
  FROM interlock.trigger_requests r LEFT JOIN interlock.workflow_instances a ON a.id = r.held_by AND a.workflow_type = 'approval'
 WHERE r.workflow_id > %(after)s AND r.workflow_id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR r.workflow_id = ANY(%(ids)s))
   AND r.finished_at IS NULL AND (r.held_by IS NOT NULL OR r.granted)
   AND NOT EXISTS (SELECT FROM interlock.workflow_instances b  -- a brake holds it, or did
                    WHERE b.id = r.held_by AND b.workflow_type = 'brake' AND (b.current_state <> 'released') = (r.status = 'waiting') AND NOT r.granted)
   AND (a.context->>'subject_id', a.context->>'request_id', a.context->>'trigger', a.context->>'requested_by', a.current_state,
        r.status = 'waiting')
       IS DISTINCT FROM (r.workflow_id::text, r.request_id, r.trigger, r.triggered_by,
                         CASE WHEN r.granted THEN 'approved' ELSE 'pending' END, NOT r.granted)
UNION ALL
SELECT a.id, format('trigger_requests %%s is missing, or not held: this approval is pending for it', a.context->>'request_id')
  FROM interlock.workflow_instances a
  LEFT JOIN interlock.trigger_requests r ON r.held_by = a.id AND r.request_id = a.context->>'request_id'
 WHERE a.id > %(after)s AND a.id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR a.id = ANY(%(ids)s))
   AND a.workflow_type = 'approval' AND a.current_state = 'pending'
   AND a.context ?& ARRAY['subject_id', 'subject_version', 'trigger', 'request_id', 'requested_by'] AND r.seq IS NULL
UNION ALL
SELECT a.id, 'no definition asks for such an approval: its quorum, deciders or author are not those of what it is about'
  FROM interlock.every_instance a
 WHERE a.id > %(after)s AND a.id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR a.id = ANY(%(ids)s)) AND a.workflow_type = 'approval'
   AND a.context ?& ARRAY['subject_id', 'subject_version', 'trigger', 'request_id', 'requested_by'] AND NOT interlock.asked_for(a.context)
UNION ALL
SELECT a.id, format('event %%s: %%s', t.seq, w.wrong)
  FROM interlock.every_instance a JOIN interlock.every_transition t ON t.workflow_id = a.id
 CROSS JOIN LATERAL (SELECT COALESCE(
           CASE t.authority WHEN 'decider' THEN interlock.no_decider(t.triggered_by, t.trigger, 'approval', t.definition_version, a.context) END,
           CASE WHEN t.from_state <> t.to_state
                THEN interlock.not_decided(a.id, t.definition_version, t.to_state, t.metadata, a.context) END)) AS w (wrong)
 WHERE a.id > %(after)s AND a.id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR a.id = ANY(%(ids)s)) AND a.workflow_type = 'approval'
   AND t.trigger <> 'definition.migrate' AND w.wrong IS NOT NULL
