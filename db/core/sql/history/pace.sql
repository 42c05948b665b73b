-- Moves a minute within the last hour, of the newest %(most)s events: bounded, whatever an hour brings.
SELECT extract(epoch FROM date_trunc('minute', created_at))::bigint AS minute, count(*) AS moves
  FROM (SELECT created_at FROM interlock.workflow_transitions ORDER BY xid DESC, position DESC LIMIT %(most)s) AS newest
 WHERE created_at > now() - interval '1 hour'
 GROUP BY 1 ORDER BY 1
