-- What is deprecated, how often it was used since, what lives under it now, and whether its version was removed.
SELECT d.deprecation_id, d.state, d.type, d.version, d.kind, d.name, d.deprecated_by, d.reason, d.guide, d.deprecated_at, d.remove_after,
       COALESCE(u.uses, 0)::bigint AS uses, u.last_used_at, d.removal_proposed_by, d.removed_at, d.removed_by, d.remove_after <= now() AS due,
       (SELECT count(*) FROM interlock.workflow_instances i
          JOIN interlock.definition_states s ON s.type = i.workflow_type AND s.version = i.definition_version
                                  AND s.state = i.current_state
         WHERE i.workflow_type = d.type AND i.definition_version = d.version AND NOT s.terminal
           AND CASE d.kind WHEN 'state' THEN i.current_state = d.name
                           WHEN 'trigger' THEN EXISTS (SELECT FROM interlock.definition_transitions t
                                                        WHERE t.type = d.type AND t.version = d.version
                                                          AND t.trigger = d.name AND t.source = i.current_state)
                           ELSE true END) AS live
  FROM interlock.deprecations d
  LEFT JOIN (SELECT deprecation_id, sum(uses) AS uses, max(last_used_at) AS last_used_at
               FROM interlock.deprecation_uses GROUP BY deprecation_id) u ON u.deprecation_id = d.deprecation_id
 WHERE d.state NOT IN ('proposed', 'undone')
 ORDER BY d.type, d.version, d.kind, d.name
