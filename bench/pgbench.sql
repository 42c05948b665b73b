-- The writes of one trigger, as the engine makes them, in one commit: request accepted, instance moved, event
-- appended, request settled. Each client has 250 instances of its own, which go to and fro between two states.
\set n random(1, 250)
BEGIN;
UPDATE interlock.workflow_instances
   SET current_state = CASE current_state WHEN 'reviewing' THEN 'changes_requested' ELSE 'reviewing' END,
       version = version + 1, error = NULL, retry_count = 0, updated_at = now()
 WHERE id = ('00000000-0000-7000-8000-' || (100000000000 + :client_id * 250 + :n))::uuid
RETURNING id AS instance, version, current_state AS state \gset
INSERT INTO interlock.trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by)
VALUES (uuidv7()::text, sha256(uuid_send(:instance)),
        :instance, CASE :state WHEN 'reviewing' THEN 'resubmit' ELSE 'request_changes' END, 'bench')
RETURNING seq, request_id AS request \gset
INSERT INTO interlock.workflow_transitions (id, workflow_id, seq, definition_version, from_state, to_state, trigger,
                                  triggered_by, request_id)
VALUES (:request::uuid, :instance, :version, '1.0.0',
        CASE :state WHEN 'reviewing' THEN 'changes_requested' ELSE 'reviewing' END, :state,
        CASE :state WHEN 'reviewing' THEN 'resubmit' ELSE 'request_changes' END, 'bench', :request);
UPDATE interlock.trigger_requests
   SET status = 'applied', finished_at = now(),
       result = jsonb_build_object('from', 'reviewing', 'to', :state::text, 'seq', :version::integer,
                                   'event_id', :request::text)
 WHERE seq = :seq;
END;
