-- The next request of a partition that could be applied, behind one that was looked at.
SELECT p.seq, p.request_id, p.workflow_id
  FROM interlock.trigger_requests p
 WHERE p.status = 'pending' AND p.partition = %(partition)s AND p.seq > %(after)s
   AND NOT EXISTS (SELECT FROM interlock.trigger_requests b
                    WHERE b.workflow_id = p.workflow_id AND b.status = 'scheduled' AND b.attempts > 0
                      AND b.seq < p.seq AND p.origin <> 'override')
 ORDER BY p.seq LIMIT 1
