-- Note what history does not tell, in the commit in which it happened.
INSERT INTO interlock.metric_deltas (name, labels, value)
SELECT n.name, ARRAY(SELECT jsonb_array_elements_text(n.labels)), n.value
  FROM json_to_recordset(%(rows)s::json) AS n (name text, labels jsonb, value double precision)
