-- Handovers that have frozen instances, which neither live elsewhere yet nor came back; the approvals of an instance go with it.
SELECT h.workflow_id AS instance_id, h.handover_id, h.frozen_at, i.workflow_type AS type, i.definition_version AS version,
       i.entity_id, i.project, i.current_state AS state, i.version AS at, i.context, i.created_by, i.created_at,
       o.context->>'head' AS head, t.triggered_by AS by, t.metadata->>'reason' AS reason, f.not_before - h.frozen_at AS due_in,
       f.trigger AS deadline
  FROM interlock.handovers h
  JOIN interlock.workflow_instances i ON i.id = h.workflow_id
  JOIN interlock.workflow_instances o ON o.id = h.handover_id AND o.current_state = 'frozen'
  JOIN interlock.workflow_transitions t ON (t.workflow_id, t.seq) = (o.id, o.version)
  LEFT JOIN interlock.trigger_requests f ON f.workflow_id = i.id AND f.status = 'waiting' AND f.origin = 'timer'
                                        AND f.bound_version = i.version
 WHERE CASE WHEN %(ids)s::uuid[] IS NOT NULL THEN h.workflow_id = ANY (%(ids)s::uuid[])
            ELSE i.workflow_type = %(type)s AND i.definition_version = %(version)s END
   AND (%(project)s::text IS NULL OR i.project = %(project)s)
   AND (%(after)s::uuid IS NULL OR h.workflow_id > %(after)s)
 ORDER BY h.workflow_id
 LIMIT %(limit)s
