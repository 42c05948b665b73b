-- The statements that make the scratch schema: every table of ours without its constraints, so that nothing is written
-- elsewhere; types and all functions, which `db/audit/rebuild.py` has work on the scratch tables; no signals, and no rows of schedules,
-- which are judged by who is an operator at their birth and are not compared; the triggers that
-- project. To be printed with an empty search path, so that everything is named with its schema.
WITH tables AS (
    SELECT c.oid, c.relname
      FROM pg_class c
     WHERE c.relnamespace = 'interlock'::regnamespace AND c.relkind = 'r' AND c.relname <> 'alembic_version'
)
SELECT statement FROM (
    SELECT 1 AS nth, t.oid, format('CREATE UNLOGGED TABLE %%I.%%I (LIKE %%s INCLUDING DEFAULTS INCLUDING IDENTITY'
                                   ' INCLUDING GENERATED)', %(scratch)s::text, relname, t.oid::regclass) AS statement
      FROM tables t
    UNION ALL
    SELECT 2, t.oid, format('CREATE UNIQUE INDEX ON %%I.%%I (%%s)', %(scratch)s::text, t.relname,
                     (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY k.nth)
                        FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (number, nth)
                        JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.number))
      FROM tables t JOIN pg_index i ON i.indrelid = t.oid AND i.indisprimary
    UNION ALL
    SELECT 3, c.oid, format('CREATE TYPE %%I.%%I AS (%%s)', %(scratch)s::text, c.relname,
                     (SELECT string_agg(format('%%I %%s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum)
                        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0))
      FROM pg_class c WHERE c.relnamespace = 'interlock'::regnamespace AND c.relkind = 'c'
    UNION ALL
    SELECT 4, p.oid, regexp_replace(CASE WHEN proname IN ('signal', 'born_schedule')
               THEN format('CREATE FUNCTION interlock.%%I(%%s) RETURNS void LANGUAGE plpgsql AS ''BEGIN END''',
                           proname, pg_get_function_identity_arguments(p.oid))
               ELSE pg_get_functiondef(p.oid) END, %(own)s, %(scratch)s || '.', 'g')
      FROM pg_proc p
     WHERE p.pronamespace = 'interlock'::regnamespace AND p.prokind = 'f'
    UNION ALL
    SELECT 5, g.oid, regexp_replace(pg_get_triggerdef(g.oid), %(own)s, %(scratch)s || '.', 'g')
      FROM pg_trigger g JOIN tables t ON t.oid = g.tgrelid
     WHERE t.relname IN ('workflow_instances', 'workflow_transitions')
       AND (g.tgname LIKE 'born\_%%' OR g.tgname LIKE 'moved\_%%' OR g.tgname LIKE 'migrated\_%%')
) AS made ORDER BY nth, oid
