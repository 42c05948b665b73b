-- Intents to do something to the world, committed with the move that asks for it.
INSERT INTO interlock.effects (id, workflow_id, version, name, payload, done_trigger, failed_trigger, exclusive,
                     trace)
SELECT e.id, e.workflow_id, e.version, e.name, COALESCE(e.payload, '{}'), e.done_trigger, e.failed_trigger, e.exclusive,
       e.trace
  FROM json_to_recordset(%(rows)s::json) AS e (
           id uuid, workflow_id uuid, version integer, name text, payload jsonb, done_trigger text,
           failed_trigger text, exclusive text, trace text)
ON CONFLICT (id) DO NOTHING
RETURNING id, name
