-- Keep what a look found in place of what the last one did; those that are new, or stuck anew in another state.
WITH seen AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(rows)s::jsonb) AS s (
        workflow_id uuid, version integer, workflow_type text, entity_id text, project text, state text,
        since timestamptz, reason text, command text)
), fresh AS MATERIALIZED (
    SELECT s.workflow_id FROM seen s
     WHERE NOT EXISTS (SELECT FROM interlock.stuck_entities k WHERE k.workflow_id = s.workflow_id AND k.version = s.version)
), gone AS (
    DELETE FROM interlock.stuck_entities k WHERE k.workflow_id NOT IN (SELECT workflow_id FROM seen)
), kept AS (
    INSERT INTO interlock.stuck_entities (workflow_id, version, workflow_type, entity_id, project, state, since, reason, command)
    SELECT workflow_id, version, workflow_type, entity_id, project, state, since, reason, command FROM seen
        ON CONFLICT (workflow_id) DO UPDATE
       SET version = EXCLUDED.version, state = EXCLUDED.state, since = EXCLUDED.since, reason = EXCLUDED.reason,
           command = EXCLUDED.command,
           found_at = CASE WHEN stuck_entities.version = EXCLUDED.version THEN stuck_entities.found_at ELSE now() END
)
SELECT workflow_id FROM fresh
