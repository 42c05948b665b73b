-- What decides about a run.
SELECT r.run_id AS id, r.state, i.version, i.entity_id, c.*
  FROM interlock.runs r JOIN interlock.workflow_instances i ON i.id = r.run_id JOIN interlock.run_counts c ON c.run_id = r.run_id
 WHERE r.run_id = %(run)s
