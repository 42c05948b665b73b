-- What stands now, each by an index and each bounded: a scrape must not make a bad night worse. Ages are in seconds.
WITH settings AS (
    SELECT %(most)s::integer AS most
), partitions AS (  -- one index probe a partition for the oldest, and at most `most` entries a partition for the count
    SELECT l.partition,
           (SELECT count(*) FROM (SELECT FROM interlock.trigger_requests p, settings
                                   WHERE p.status = 'pending' AND p.partition = l.partition LIMIT (SELECT most FROM settings)) c)
               AS pending,
           (SELECT extract(epoch FROM now() - GREATEST(accepted_at, not_before))
              FROM interlock.trigger_requests p WHERE p.status = 'pending' AND p.partition = l.partition ORDER BY p.seq LIMIT 1) AS age
      FROM generate_series(0, 15) AS l (partition)
), held AS (
    SELECT count(*) AS many, extract(epoch FROM now() - min(accepted_at)) AS age
      FROM (SELECT accepted_at FROM interlock.trigger_requests WHERE status = 'waiting' LIMIT (SELECT most FROM settings)) w
), retried AS (
    SELECT count(*) AS many, extract(epoch FROM now() - min(accepted_at)) AS age
      FROM (SELECT accepted_at FROM interlock.trigger_requests WHERE status = 'scheduled' AND attempts > 0
             LIMIT (SELECT most FROM settings)) r
), overdue AS (
    SELECT extract(epoch FROM now() - not_before) AS age
      FROM interlock.trigger_requests WHERE status = 'scheduled' AND not_before <= now() ORDER BY not_before LIMIT 1
), acts AS (
    SELECT count(*) AS many, extract(epoch FROM now() - min(not_before)) AS age
      FROM (SELECT not_before FROM interlock.effects WHERE status = 'pending' AND not_before <= now()
               AND NOT (EXISTS (SELECT FROM interlock.limits) AND id IN (SELECT interlock.effects_without_room()))
             ORDER BY not_before LIMIT (SELECT most FROM settings)) e
), swept AS (
    SELECT w.name, w.every_seconds, s.started_at, s.finished_at,
           extract(epoch FROM now() - COALESCE(s.started_at, (SELECT min(recorded_at) FROM interlock.workflow_definitions))) AS age
      FROM unnest(%(sweeps)s::text[], %(periods)s::float8[]) AS w (name, every_seconds)
      LEFT JOIN interlock.sweeps s ON s.name = w.name
), verified AS (  -- the last pass that ended, and the one under way
    SELECT started_at, finished_at, problems FROM interlock.verifications
     WHERE pass >= (SELECT COALESCE(max(pass), 0) FROM interlock.verifications WHERE finished_at IS NOT NULL)
)
SELECT 'interlock_pending_requests' AS name, ARRAY[partition::text] AS labels, pending::float8 AS value FROM partitions
UNION ALL SELECT 'interlock_partition_stuck_seconds', ARRAY[l.partition::text],
                 COALESCE((SELECT extract(epoch FROM now() - w.since) FROM interlock.partition_watch w
                            JOIN interlock.trigger_requests r ON r.seq = w.head AND r.status = 'pending'
                           WHERE w.partition = l.partition), 0)
            FROM partitions l
UNION ALL SELECT 'interlock_requests', ARRAY['waiting'], many FROM held
UNION ALL SELECT 'interlock_requests', ARRAY['retrying'], many FROM retried
UNION ALL SELECT 'interlock_requests', ARRAY['pending'], sum(pending) FROM partitions
UNION ALL SELECT 'interlock_requests', ARRAY['scheduled'], count(*)
            FROM (SELECT FROM interlock.trigger_requests WHERE status = 'scheduled' LIMIT (SELECT most FROM settings)) s
UNION ALL SELECT 'interlock_requests', ARRAY['dead'], count(*)
            FROM (SELECT FROM interlock.trigger_requests WHERE status = 'dead' AND result->>'was' IS DISTINCT FROM 'dead'
                   LIMIT (SELECT most FROM settings)) d
UNION ALL SELECT 'interlock_effects', ARRAY['due'], many FROM acts
UNION ALL SELECT 'interlock_effects', ARRAY['leased'], count(*) FROM interlock.effects WHERE status = 'leased'
UNION ALL SELECT 'interlock_effects', ARRAY['dead'], count(*)
            FROM (SELECT FROM interlock.effects e WHERE status = 'dead' AND interlock.awaited(e) LIMIT (SELECT most FROM settings)) d
UNION ALL SELECT 'interlock_expired_leases', '{}', count(*) FROM interlock.effects WHERE status = 'leased' AND lease_until < now()
UNION ALL SELECT 'interlock_queue_age_seconds', ARRAY['pending'], COALESCE(max(age), 0) FROM partitions
UNION ALL SELECT 'interlock_queue_age_seconds', ARRAY['overdue'], COALESCE(max(age), 0) FROM overdue
UNION ALL SELECT 'interlock_queue_age_seconds', ARRAY['retrying'], COALESCE(max(age), 0) FROM retried
UNION ALL SELECT 'interlock_queue_age_seconds', ARRAY['waiting'], COALESCE(max(age), 0) FROM held
UNION ALL SELECT 'interlock_queue_age_seconds', ARRAY['effect'], COALESCE(max(age), 0) FROM acts
UNION ALL SELECT 'interlock_oldest_pending_request_seconds', '{}',
                 GREATEST((SELECT max(age) FROM partitions), (SELECT max(age) FROM overdue), 0)
UNION ALL SELECT 'interlock_relay_lag_seconds', ARRAY[d.name],  -- one that never got anything has no cursor, and lags too
                 COALESCE((SELECT extract(epoch FROM now() - t.created_at) FROM interlock.workflow_transitions t
                            WHERE (t.xid, t.position) > (COALESCE(c.xid, '0'), COALESCE(c.position, 0))
                            ORDER BY t.xid, t.position LIMIT 1), 0)
            FROM unnest(%(destinations)s::text[]) AS d (name) LEFT JOIN interlock.relay_cursors c USING (name)
UNION ALL SELECT 'interlock_audit_export_lag_seconds', '{}',
                 COALESCE((SELECT extract(epoch FROM now() - t.created_at) FROM interlock.workflow_transitions t
                            WHERE (t.xid, t.position) > (COALESCE(e.xid, '0'), COALESCE(e.position, 0))
                            ORDER BY t.xid, t.position LIMIT 1), 0)
            FROM (SELECT) AS one LEFT JOIN interlock.relay_cursors e ON e.name = %(export)s
UNION ALL SELECT 'interlock_audit_problems', '{}', COALESCE(sum(problems), 0) FROM verified
UNION ALL SELECT 'interlock_audit_age_seconds', '{}',
                 extract(epoch FROM now() - COALESCE((SELECT started_at FROM verified WHERE finished_at IS NOT NULL),
                                                     (SELECT min(recorded_at) FROM interlock.workflow_definitions)))
UNION ALL SELECT 'interlock_anchor_age_seconds', '{}',
                 COALESCE((SELECT extract(epoch FROM now() - COALESCE(a.made_at, e.created_at))
                             FROM (SELECT created_at FROM interlock.workflow_transitions ORDER BY xid DESC, position DESC LIMIT 1) e
                            WHERE a.made_at IS NULL OR e.created_at > a.made_at), 0)
            FROM (SELECT max(made_at) AS made_at FROM interlock.anchors) AS a
UNION ALL SELECT 'interlock_sweep_lag_seconds', ARRAY[name], GREATEST(age - every_seconds, 0) FROM swept
UNION ALL SELECT 'interlock_sweep_run_seconds', ARRAY[name], extract(epoch FROM finished_at - started_at) FROM swept
           WHERE finished_at IS NOT NULL
UNION ALL SELECT 'interlock_beat_alive', '{}',
                 min(CASE WHEN age > GREATEST(%(overdue_periods)s * every_seconds, %(overdue_seconds)s) THEN 0 ELSE 1 END)
            FROM swept
UNION ALL SELECT 'interlock_breakers_open', ARRAY[tool_id]::text[], count(*)
            FROM (SELECT tool_id FROM interlock.circuit_breakers WHERE state = 'OPEN' ORDER BY tool_id LIMIT 50) b GROUP BY tool_id
UNION ALL SELECT 'interlock_workers', ARRAY[state]::text[], count(*) FROM interlock.workers WHERE shutdown_at IS NULL GROUP BY state
UNION ALL SELECT 'interlock_brakes', ARRAY[k.kind], (SELECT count(*) FROM interlock.brakes b WHERE b.kind = k.kind)
            FROM (VALUES ('actor'), ('run'), ('project'), ('instance')) AS k (kind)
UNION ALL SELECT 'interlock_schedules', ARRAY['late'], count(*)
            FROM (SELECT FROM interlock.schedules WHERE next_at < now() - interval '1 min'  -- SCHEDULE-8
                   LIMIT (SELECT most FROM settings)) s
UNION ALL SELECT 'interlock_schedules', ARRAY['failing'], count(*)
            FROM (SELECT FROM interlock.schedules WHERE failed_at IS NOT NULL AND next_at IS NOT NULL
                   LIMIT (SELECT most FROM settings)) s
UNION ALL SELECT 'interlock_subscriptions', ARRAY[c.status], c.subscriptions FROM interlock.count_subscriptions(60) c
UNION ALL SELECT 'interlock_stuck_entities', ARRAY[workflow_type, state]::text[], count(*)
            FROM interlock.stuck_entities GROUP BY workflow_type, state
UNION ALL SELECT 'interlock_stuck_overrun', ARRAY[workflow_type, state]::text[], max(overrun)
            FROM (SELECT workflow_type, state,
                         extract(epoch FROM now() - since) / CASE WHEN workflow_type = 'task' AND state = 'running'
                                                                      THEN %(stuck_task)s::float8
                                                                  WHEN workflow_type = 'workstream' AND state = 'executing'
                                                                      THEN %(stuck_workstream)s
                                                                  WHEN state IN ('idle', 'busy', 'unresponsive', 'IDLE', 'BUSY', 'DRAINING')
                                                                       AND workflow_type IN ('worker', 'uet_worker')
                                                                      THEN %(silent)s
                                                                  ELSE %(stuck_general)s END AS overrun
                    FROM interlock.stuck_entities) s WHERE overrun IS NOT NULL GROUP BY workflow_type, state
UNION ALL SELECT 'interlock_deprecated_uses_total', ARRAY[d.type, d.version, d.kind, d.name]::text[],
                 COALESCE((SELECT sum(u.uses) FROM interlock.deprecation_uses u WHERE u.deprecation_id = d.deprecation_id), 0)
            FROM interlock.deprecations d WHERE d.state NOT IN ('proposed', 'undone')
UNION ALL SELECT 'interlock_build_info', ARRAY[%(version)s, (SELECT max(version_num) FROM interlock.alembic_version)::text,
                                               current_setting('server_version')], 1
