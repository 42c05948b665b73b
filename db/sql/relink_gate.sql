-- Whatever named a failed gate names the one that is run in its place.
WITH old AS (
    DELETE FROM interlock.workflow_links WHERE target_id = %(old)s AND role <> 'retry_of' RETURNING *
)
INSERT INTO interlock.workflow_links (source_id, role, inverse, target_id)
SELECT source_id, role, inverse, %(new)s FROM old WHERE source_id <> %(new)s
