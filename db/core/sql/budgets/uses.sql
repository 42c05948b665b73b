-- How much counts now of what was used of budgets, by the name that each counts, most first; and whether a brake is on for it.
SELECT b.budget_id, u.name, COALESCE(r.entity_id, u.name) AS shown, sum(u.amount)::double precision AS used,
       EXISTS (SELECT FROM interlock.brakes k WHERE (k.budget_id, k.name) = (b.budget_id, u.name)) AS braked
  FROM interlock.budgets b
  JOIN interlock.budget_uses u USING (budget_id)
  LEFT JOIN interlock.workflow_instances r ON b.kind = 'run' AND r.id::text = u.name
 WHERE b.budget_id = ANY (%(ids)s)
   AND (b.per_seconds IS NULL OR u.slot > interlock.budget_slot(b, clock_timestamp()) - 101)
 GROUP BY b.budget_id, u.name, r.entity_id
 ORDER BY used DESC, u.name
