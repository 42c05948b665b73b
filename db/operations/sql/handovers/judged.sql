-- Instances that are to be handed over, and the approvals that hold a trigger of theirs: where each stands, and why it cannot be.
WITH meant AS (
    SELECT id, NULL::uuid AS subject FROM unnest(%(ids)s::uuid[]) AS id
    UNION ALL
    SELECT r.held_by, r.workflow_id
      FROM interlock.trigger_requests r
      JOIN interlock.workflow_instances s ON s.id = r.workflow_id
     WHERE r.workflow_id = ANY (ARRAY(SELECT unnest(%(ids)s::uuid[]))) AND r.status = 'waiting'
       AND interlock.held_for(r.held_by) = s.version  -- later it moved: then nothing is held any more (APPROVAL-5)
)
SELECT i.id, i.workflow_type AS type, i.entity_id, i.project, i.current_state AS state, i.version AS at,
       encode(interlock.head_of(i), 'hex') AS head, m.subject, interlock.no_handover(i, m.subject) AS why
  FROM meant m JOIN interlock.workflow_instances i USING (id)
 ORDER BY i.id
