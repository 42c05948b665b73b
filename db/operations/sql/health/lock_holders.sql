-- Which sessions hold partitions' locks. Says of others' sessions only what every login may see.
SELECT a.pid, a.usename::text AS login, a.application_name AS application,
       pg_has_role(a.usesysid, 'interlock_engine', 'MEMBER') AS engine,
       array_agg(l.objid::integer ORDER BY l.objid) AS partitions
  FROM pg_locks l
  JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND l.classid = %(namespace)s AND l.objid < %(partitions)s
 GROUP BY a.pid, a.usename, a.usesysid, a.application_name
 ORDER BY a.pid
