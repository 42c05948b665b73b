-- What the session's login is a member of, and what it may do beyond its part, the first of the schema's roles that it is a
-- member of. PostgreSQL's own functions answer, so that grants to groups, columns and everybody, ownership and predefined roles
-- count. It is judged as itself, as each role that it can become, and as PUBLIC (0), to which migrations grant nothing.
WITH login AS MATERIALIZED (
    SELECT r.oid, r.rolname,
           (SELECT g.oid FROM unnest(%(parts)s::text[]) WITH ORDINALITY AS p (name, n)
              JOIN pg_roles g ON g.rolname = p.name AND pg_has_role(r.oid, g.oid, 'MEMBER') ORDER BY n LIMIT 1) AS part,
           EXISTS (SELECT FROM pg_roles g WHERE g.rolname = 'interlock_owner' AND pg_has_role(r.oid, g.oid, 'MEMBER')) AS owner
      FROM pg_roles r WHERE r.rolname = session_user),
acts AS MATERIALIZED (
    SELECT g.oid, g.rolname, g.rolsuper, g.rolcreaterole, g.rolcreatedb, g.rolreplication, g.rolbypassrls
      FROM pg_roles g, login WHERE pg_has_role(login.oid, g.oid, 'MEMBER')),
judged AS MATERIALIZED (
    SELECT a.oid AS act, login.part FROM (SELECT oid FROM acts UNION ALL SELECT 0) a, login WHERE NOT owner AND part IS NOT NULL),
relations AS (
    SELECT c.oid, c.relname, c.relkind FROM pg_class c
     WHERE c.relnamespace = 'interlock'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')),
held AS (
    SELECT DISTINCT c.oid, c.relname, p.privilege, NULL::name AS attname
      FROM relations c, judged j,
           unnest(CASE WHEN current_setting('server_version_num')::integer >= 170000 THEN ARRAY['DELETE', 'TRUNCATE', 'TRIGGER', 'MAINTAIN']
                       ELSE ARRAY['DELETE', 'TRUNCATE', 'TRIGGER'] END) AS p (privilege)
     WHERE has_table_privilege(j.act, c.oid, p.privilege)
       AND (j.act = 0 OR NOT has_table_privilege(j.part, c.oid, p.privilege))
     UNION
    SELECT DISTINCT c.oid, c.relname, p.privilege, a.attname
      FROM relations c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped, judged j,
           unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) AS p (privilege)
     WHERE has_column_privilege(j.act, c.oid, a.attnum, p.privilege)
       AND (j.act = 0 OR NOT has_column_privilege(j.part, c.oid, a.attnum, p.privilege))),
tables AS (
    SELECT relname, string_agg(said, ', ' ORDER BY said) AS privileges
      FROM (SELECT oid, relname,
                   privilege || CASE WHEN count(attname) NOT IN (0, (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = held.oid
                                                                      AND a.attnum > 0 AND NOT a.attisdropped))
                                     THEN format(' (%%s)', string_agg(attname, ', ' ORDER BY attname)) ELSE '' END AS said
              FROM held GROUP BY oid, relname, privilege) each
     GROUP BY relname)
SELECT login.rolname AS name, (SELECT rolname FROM pg_roles WHERE oid = login.part) AS part, login.owner,
       EXISTS (SELECT FROM acts WHERE rolsuper) AS superuser,
       ARRAY(SELECT attribute FROM (VALUES
                 ('CREATEROLE', (SELECT bool_or(rolcreaterole) FROM acts)), ('CREATEDB', (SELECT bool_or(rolcreatedb) FROM acts)),
                 ('REPLICATION', (SELECT bool_or(rolreplication) FROM acts)), ('BYPASSRLS', (SELECT bool_or(rolbypassrls) FROM acts)))
                 AS v (attribute, has) WHERE has) AS attributes,
       ARRAY(SELECT rolname::text FROM acts WHERE rolname LIKE 'pg\_%%' ORDER BY 1) AS predefined,
       ARRAY(SELECT rolname::text FROM acts WHERE acts.oid <> login.oid AND rolname = ANY (%(parts)s)
                AND pg_has_role(login.oid, acts.oid, 'MEMBER WITH ADMIN OPTION') ORDER BY 1) AS grants,
       ARRAY(SELECT relname || ': ' || privileges FROM tables ORDER BY 1) AS tables,
       ARRAY(SELECT DISTINCT c.relname::text
               FROM pg_class c, judged j, unnest(ARRAY['SELECT', 'USAGE', 'UPDATE']) AS p (privilege)
              WHERE c.relnamespace = 'interlock'::regnamespace AND c.relkind = 'S'
                AND has_sequence_privilege(j.act, c.oid, p.privilege)
                AND (j.act = 0 OR NOT has_sequence_privilege(j.part, c.oid, p.privilege)) ORDER BY 1) AS sequences,
       ARRAY(SELECT DISTINCT p.proname::text FROM pg_proc p, judged j
              WHERE p.pronamespace = 'interlock'::regnamespace AND has_function_privilege(j.act, p.oid, 'EXECUTE')
                AND (j.act = 0 OR NOT has_function_privilege(j.part, p.oid, 'EXECUTE')) ORDER BY 1) AS functions,
       ARRAY(SELECT said FROM (
                 SELECT relname::text AS said, relowner AS owner FROM pg_class
                  WHERE relnamespace = 'interlock'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
                  UNION ALL SELECT proname || '()', proowner FROM pg_proc WHERE pronamespace = 'interlock'::regnamespace
                  UNION ALL SELECT 'the schema', nspowner FROM pg_namespace WHERE oid = 'interlock'::regnamespace
                  UNION ALL SELECT 'the database', datdba FROM pg_database WHERE datname = current_database()) owned
              WHERE NOT login.owner AND owned.owner IN (SELECT oid FROM acts) ORDER BY 1) AS owns,
       EXISTS (SELECT FROM judged j WHERE has_schema_privilege(j.act, 'interlock'::regnamespace, 'CREATE')) AS creates,
       EXISTS (SELECT FROM judged j WHERE has_parameter_privilege(j.act, 'session_replication_role', 'SET')) AS replica
  FROM login
