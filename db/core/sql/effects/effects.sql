-- Intents to do something to the world, committed with the move that asks for it.
INSERT INTO interlock.effects (id, workflow_id, version, name, queue, payload, done_trigger, failed_trigger, exclusive,
                     limit_key, trace)
SELECT e.id, e.workflow_id, e.version, e.name, COALESCE(e.queue, 'effects'), COALESCE(e.payload, '{}'), e.done_trigger, e.failed_trigger, e.exclusive,
       e.limit_key, e.trace
  FROM json_to_recordset(%(rows)s::json) AS e (
           id uuid, workflow_id uuid, version integer, name text, queue text, payload jsonb, done_trigger text,
           failed_trigger text, exclusive text, limit_key text, trace text)
ON CONFLICT (id) DO NOTHING
RETURNING id, name, queue,
          (SELECT i.workflow_type || '/' || i.entity_id FROM interlock.workflow_instances i WHERE i.id = workflow_id) AS entity
