-- A run's gates, those run again included; what they printed last, as far as a line or two needs it.
SELECT g.gate_id AS id, g.workstream_id, i.context->>'name' AS name, i.entity_id, i.version, g.gate_type, g.moment,
       g.state, g.reruns_left, i.context->>'retry_of' AS retry_of, g.exit_code, g.duration_sec,
       CASE WHEN g.state = 'FAILED' THEN right(COALESCE(NULLIF(g.stderr, ''), g.stdout), 2000) END AS output,
       g.created_at, g.started_at, g.completed_at
  FROM interlock.workstreams w
  JOIN interlock.test_gates g ON g.workstream_id = w.ws_id
  JOIN interlock.workflow_instances i ON i.id = g.gate_id
 WHERE w.run_id = %(run)s AND (%(ids)s::uuid[] IS NULL OR g.gate_id = ANY(%(ids)s))
 ORDER BY g.gate_id
