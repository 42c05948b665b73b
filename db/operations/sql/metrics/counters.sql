-- Every counter as it stands: what was added up, and what is noted since.
SELECT name, labels, sum(value) AS value
  FROM (SELECT name, labels, value FROM interlock.metric_values
        UNION ALL
        SELECT name, labels, value FROM interlock.metric_deltas) AS parts
 GROUP BY name, labels
UNION ALL
SELECT 'interlock_refusals_total', ARRAY[login]::text[], total::float8 FROM interlock.refusal_counts WHERE project = ''
UNION ALL
-- A counter that first appears as 1 has not increased, as Prometheus sees it: so what may happen begins at 0.
SELECT DISTINCT 'state_transitions_total', ARRAY[type, source, dest]::text[], 0::float8 FROM interlock.definition_transitions
UNION ALL
SELECT DISTINCT 'entity_state', ARRAY[type, state]::text[], 0::float8 FROM interlock.definition_states
UNION ALL
SELECT DISTINCT 'interlock_failed_transitions_total', ARRAY[type, reason]::text[], 0::float8
  FROM interlock.workflow_definitions, unnest(%(reasons)s::text[]) AS reason
UNION ALL
SELECT DISTINCT 'manual_state_overrides_total', ARRAY[d.type, o.name]::text[], 0::float8
  FROM interlock.workflow_definitions d, interlock.operators o
 WHERE o.state = 'active' AND (o.until IS NULL OR o.until > now())
UNION ALL
SELECT 'interlock_refusals_total', ARRAY[rolname]::text[], 0::float8 FROM pg_roles
 WHERE rolcanlogin AND (pg_has_role(oid, 'interlock_engine', 'MEMBER') OR pg_has_role(oid, 'interlock_client', 'MEMBER'))
