-- Add up what was noted, and forget the notes, in one statement.
WITH taken AS (
    DELETE FROM interlock.metric_deltas WHERE id IN (SELECT id FROM interlock.metric_deltas ORDER BY id LIMIT %(limit)s)
    RETURNING name, labels, value
), added AS (
    INSERT INTO interlock.metric_values AS kept (name, labels, value)
    SELECT name, labels, sum(value) FROM taken GROUP BY name, labels
        ON CONFLICT (name, labels) DO UPDATE SET value = kept.value + EXCLUDED.value
)
SELECT count(*) FROM taken
