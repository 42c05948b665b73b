-- The older lineage has no tables of its own: its retries are counted in history, their limit is in the context.
SELECT i.id AS workflow_id, COALESCE((i.context->>'max_retries')::integer, 3) AS max_retries,
       (SELECT count(*) FROM workflow_transitions t
         WHERE t.workflow_id = i.id AND t.to_state IN ('retrying', 'S_RETRYING'))::integer AS retry_count
  FROM workflow_instances i WHERE i.id = ANY(%(ids)s)
