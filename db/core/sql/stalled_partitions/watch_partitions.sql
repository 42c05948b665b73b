-- Keep watch over the partitions whose oldest request is late: which one it is, and since when. A partition that moves costs a probe and
-- is forgotten once nothing in it is late. Returned are those that stand, and those that are being applied one by one.
WITH heads AS (
    SELECT l.partition, h.seq
      FROM generate_series(0, 15) AS l (partition)
     CROSS JOIN LATERAL (
            SELECT p.seq, GREATEST(p.accepted_at, p.not_before) AS due_at
              FROM interlock.trigger_requests p
             WHERE p.status = 'pending' AND p.partition = l.partition
               AND NOT EXISTS (SELECT FROM interlock.trigger_requests b
                                WHERE b.workflow_id = p.workflow_id AND b.status = 'scheduled' AND b.attempts > 0
                                  AND b.seq < p.seq AND p.origin <> 'override')
             ORDER BY p.seq LIMIT 1) h
     WHERE h.due_at < now() - make_interval(secs => %(late_seconds)s)
), forgotten AS (
    DELETE FROM interlock.partition_watch w WHERE NOT EXISTS (SELECT FROM heads h WHERE h.partition = w.partition)
), watched AS (
    INSERT INTO interlock.partition_watch AS w (partition, head) SELECT partition, seq FROM heads
        ON CONFLICT (partition) DO UPDATE
           SET head = EXCLUDED.head, since = CASE WHEN w.head = EXCLUDED.head THEN w.since ELSE now() END
    RETURNING partition, since, begun
)
SELECT partition FROM watched WHERE since < now() - make_interval(secs => %(stands_seconds)s) OR begun > 1 ORDER BY partition
