-- Effects that could be claimed now, oldest first: of those that share a key only the oldest, and none while one of
-- them is leased.
SELECT e.id, e.name
  FROM interlock.effects e
 WHERE e.status = 'pending' AND e.not_before <= now()
   AND NOT EXISTS (SELECT FROM interlock.effects o WHERE o.exclusive = e.exclusive AND o.status = 'leased')
   AND NOT EXISTS (SELECT FROM interlock.effects o
                    WHERE o.exclusive = e.exclusive AND o.status = 'pending' AND o.not_before <= now()
                      AND (o.not_before, o.id) < (e.not_before, e.id))
 ORDER BY e.not_before LIMIT %(limit)s
