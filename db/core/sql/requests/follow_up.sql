-- The triggers that moves fire on the instances linked to theirs, in either direction of the link.
WITH accepted AS (
INSERT INTO interlock.trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, metadata, origin,
                                        authority, proof, trace)
SELECT f.event_id || ':' || f.trigger || ':' || l.other, sha256(convert_to(f.event_id || l.other, 'UTF8')),
       l.other, f.trigger, f.triggered_by, jsonb_build_object('caused_by', f.event_id), 'follow_up',
       'machinery', 'event:' || f.event_id, f.trace
  FROM json_to_recordset(%(rows)s::json) AS f (
           event_id text, workflow_id uuid, role text, trigger text, triggered_by text, trace text)
  JOIN (SELECT source_id AS one, role, target_id AS other FROM interlock.workflow_links
        UNION ALL
        SELECT target_id, inverse, source_id FROM interlock.workflow_links) l
    ON l.one = f.workflow_id AND l.role = f.role
RETURNING request_id, partition, workflow_id, trigger, triggered_by, status
)
SELECT a.*, i.workflow_type, i.entity_id FROM accepted a JOIN interlock.workflow_instances i ON i.id = a.workflow_id
