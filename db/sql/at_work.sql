-- Whoever may still write into a workstream's worktree: workers with a task of it, gates that run.
SELECT (SELECT count(*) FROM interlock.task_claims c JOIN interlock.tasks t ON t.task_id = c.task_id
         WHERE t.workstream_id = %(id)s AND c.run_id = t.run_id AND c.ended_at IS NULL)
     + (SELECT count(*) FROM interlock.effects e JOIN interlock.test_gates g ON g.gate_id = e.workflow_id
         WHERE g.workstream_id = %(id)s AND e.status = 'leased' AND e.lease_until > now())
