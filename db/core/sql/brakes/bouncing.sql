-- Of the events after a place, instances that go back and forth: more than `most` times from one state to another by what anyone may fire.
-- An instance with fewer events than that cannot be one, which nearly all are: nothing more is read of them.
WITH fresh AS MATERIALIZED (
    SELECT t.xid, t.position, t.workflow_id, t.from_state, t.to_state, t.seq, t.authority
      FROM interlock.workflow_transitions t
     WHERE (t.xid, t.position) > (%(xid)s::text::xid8, %(position)s) AND t.xid < pg_snapshot_xmin(pg_current_snapshot())
     ORDER BY t.xid, t.position LIMIT %(limit)s
), suspects AS MATERIALIZED (
    SELECT DISTINCT workflow_id, from_state, to_state FROM fresh
     WHERE authority = 'anyone' AND from_state <> to_state AND seq > %(most)s
), counted AS MATERIALIZED (
    SELECT s.*, interlock.bounced(s.workflow_id, s.from_state, s.to_state, %(seconds)s, %(most)s) AS times FROM suspects s
)
SELECT (SELECT count(*) FROM fresh) AS read, last.xid::text::bigint AS xid, last.position, c.workflow_id, c.from_state, c.to_state, c.times,
       i.workflow_type, i.entity_id, i.project
  FROM (SELECT xid, position FROM fresh ORDER BY xid DESC, position DESC LIMIT 1) last
  LEFT JOIN (counted c JOIN interlock.workflow_instances i ON i.id = c.workflow_id)
    ON c.times > %(most)s
       AND NOT EXISTS (SELECT FROM interlock.brakes b
                        WHERE (b.project, b.kind, b.name) = (i.project, 'instance', c.workflow_id::text))
