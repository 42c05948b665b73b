-- What an operator asks first: how much waits, since when, what is dead.
SELECT (SELECT count(*) FROM interlock.trigger_requests WHERE status = 'pending') AS pending,
       (SELECT extract(epoch FROM now() - min(GREATEST(accepted_at, not_before)))
          FROM interlock.trigger_requests WHERE status = 'pending') AS oldest_pending_seconds,
       (SELECT extract(epoch FROM now() - min(not_before))
          FROM interlock.trigger_requests WHERE status = 'scheduled' AND not_before <= now()) AS oldest_overdue_seconds,
       (SELECT count(*) FROM interlock.trigger_requests WHERE status = 'scheduled' AND attempts > 0) AS retrying,
       (SELECT count(*) FROM interlock.trigger_requests WHERE status = 'waiting') AS waiting,
       -- What an operator settled (`quarantine request` of a dead one) is nobody's work any more.
       (SELECT count(*) FROM interlock.trigger_requests
         WHERE status = 'dead' AND result->>'was' IS DISTINCT FROM 'dead') AS dead,
       (SELECT count(*) FROM interlock.effects e WHERE status = 'dead' AND interlock.awaited(e)) AS dead_effects,
       (SELECT count(*) FROM interlock.effects WHERE status = 'leased' AND lease_until < now()) AS expired_leases,
       -- Due, and nobody is at any of its queue, which has nodes of its own.
       (SELECT extract(epoch FROM now() - min(e.not_before))
          FROM interlock.effects e
         WHERE e.status = 'pending' AND e.not_before <= now()
           AND NOT (EXISTS (SELECT FROM interlock.limits) AND e.id IN (SELECT interlock.effects_without_room()))
           AND NOT EXISTS (SELECT FROM interlock.effects l WHERE l.status = 'leased' AND l.lease_until > now()
                              AND l.queue = e.queue)) AS oldest_untaken_effect_seconds
