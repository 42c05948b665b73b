-- Add a batch of events to what is counted: each move, the two states it leaves and enters, the time spent in the first,
-- and overrides by operator. One row a series, whatever the size of the batch. An override is one transaction, however
-- many moves its way takes: its first move counts (the rest may come in another batch).
WITH batch AS MATERIALIZED (
    SELECT t.workflow_type, t.from_state, t.to_state, t.metadata->>'operator' AS operator, t.xid, t.position,
           GREATEST(extract(epoch FROM t.created_at - COALESCE(earlier.created_at, i.created_at)), 0)::float8 AS seconds
      FROM interlock.workflow_transitions t
      LEFT JOIN interlock.workflow_transitions earlier ON earlier.workflow_id = t.workflow_id AND earlier.seq = t.seq - 1
      LEFT JOIN interlock.workflow_instances i ON i.id = t.workflow_id AND t.seq = 1
     WHERE t.id = ANY (%(ids)s::uuid[])
       AND (t.trigger <> 'definition.migrate' OR t.from_state <> t.to_state)  -- another version of the same state is no move
), spent AS (
    SELECT workflow_type, from_state, seconds,
           (SELECT count(*) + 1 FROM unnest(%(bounds)s::float8[]) AS bound WHERE bound < seconds)::integer AS bucket
      FROM batch
), counted (name, labels, value) AS (
    SELECT 'state_transitions_total', ARRAY[workflow_type, from_state, to_state], count(*)::float8
      FROM batch GROUP BY 2
    UNION ALL
    SELECT 'entity_state', ARRAY[workflow_type, state], sum(change)
      FROM batch, LATERAL (VALUES (from_state, -1), (to_state, 1)) AS ends (state, change) GROUP BY 2
    UNION ALL
    SELECT 'state_transition_duration_seconds_bucket',
           ARRAY[workflow_type, from_state, (%(bound_names)s::text[])[bucket]], count(*)
      FROM spent GROUP BY 2
    UNION ALL
    SELECT 'state_transition_duration_seconds_sum', ARRAY[workflow_type, from_state], sum(seconds)
      FROM spent GROUP BY 2
    UNION ALL
    SELECT 'manual_state_overrides_total', ARRAY[workflow_type, operator], count(*)
      FROM batch b
     WHERE operator IS NOT NULL
       AND NOT EXISTS (SELECT FROM interlock.workflow_transitions t
                        WHERE t.xid = b.xid AND t.position < b.position AND t.metadata->>'operator' IS NOT NULL)
     GROUP BY 2
)
INSERT INTO interlock.metric_values AS kept (name, labels, value)
SELECT name, labels, value FROM counted
    ON CONFLICT (name, labels) DO UPDATE SET value = kept.value + EXCLUDED.value
