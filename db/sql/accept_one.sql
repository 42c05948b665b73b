-- Accept one request that is due at once: durable when this returns, being a transaction of its own. Plain parameters
-- cost a third less than the rows of `accept`. One whose request_id is known already is left as it is.
INSERT INTO interlock.trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, metadata, trace)
VALUES (%(request_id)s, decode(%(fingerprint)s, 'hex'), %(workflow_id)s, %(trigger)s, %(triggered_by)s, %(metadata)s,
        %(trace)s)
    ON CONFLICT (request_id) DO NOTHING
RETURNING request_id, partition, workflow_id, trigger, status
