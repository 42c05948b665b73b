-- Partitions of a job's workers and descendants that have a pending follow-up trigger.
WITH RECURSIVE tree AS (
    SELECT %(id)s::uuid AS id
    UNION ALL
    SELECT j.id FROM interlock.jobs j JOIN tree t ON j.parent_job_id = t.id
), concerned AS (
    SELECT id FROM tree
    UNION
    SELECT l.target_id FROM interlock.workflow_links l JOIN tree t ON l.source_id = t.id WHERE l.role = 'workers'
)
SELECT DISTINCT r.partition
  FROM interlock.trigger_requests r JOIN concerned c ON c.id = r.workflow_id
 WHERE r.status = 'pending' AND r.origin = 'follow_up'
 ORDER BY r.partition
