-- Each instance to the state its last move of this commit leads to, if it still stands where it was decided.
UPDATE workflow_instances i
   SET current_state = m.state, version = m.version, error = NULL, retry_count = 0, updated_at = now()
  FROM json_to_recordset(%(rows)s::json) AS m (id uuid, seen integer, version integer, state text)
 WHERE i.id = m.id AND i.version = m.seen
