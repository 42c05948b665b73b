-- What the session's login is a member of, and may do beyond that.
SELECT r.rolname AS name, r.rolsuper AS superuser, r.rolcreaterole AS creates_roles,
       ARRAY(SELECT g.rolname::text FROM pg_roles g WHERE g.rolname = ANY(%(roles)s) AND pg_has_role(r.oid, g.oid, 'MEMBER')
              ORDER BY 1) AS member_of,
       ARRAY(SELECT DISTINCT c.relname::text FROM pg_class c CROSS JOIN aclexplode(c.relacl) a
              WHERE c.relnamespace = 'interlock'::regnamespace AND a.privilege_type <> 'SELECT'
                AND (a.grantee = 0 OR a.grantee = r.oid AND r.rolname <> ALL (%(roles)s)) ORDER BY 1) AS writes
  FROM pg_roles r
 WHERE r.rolname = session_user
