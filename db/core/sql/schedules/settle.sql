-- What became of the times of schedules: all up to `now` are settled.
UPDATE interlock.schedules s
   SET settled = GREATEST(s.settled, now()), next_at = n.next_at, fired = s.fired + n.fired, last_due = COALESCE(n.last_due, s.last_due),
       failed_at = CASE WHEN n.fired = 0 THEN s.failed_at END
  FROM json_to_recordset(%(rows)s::json) AS n (schedule_id uuid, next_at timestamptz, fired integer, last_due timestamptz)
 WHERE s.schedule_id = n.schedule_id
