-- The statements that make the scratch schema: every table of ours without its constraints, so that nothing is written
-- elsewhere; the functions that take a table's row, for the scratch tables' rows; no signals; the triggers that project.
-- Printed with `public` as search path, and run with the scratch schema before it: names without a schema move there.
WITH tables AS (
    SELECT c.oid, c.relname, c.reltype
      FROM pg_class c
     WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
       AND c.relname NOT IN ('alembic_version', 'workflow_definitions', 'definition_states', 'definition_transitions')
)
SELECT statement FROM (
    SELECT 1 AS nth, format('CREATE UNLOGGED TABLE %%I.%%I (LIKE public.%%I INCLUDING DEFAULTS INCLUDING IDENTITY'
                            ' INCLUDING GENERATED)', %(schema)s::text, relname, relname) AS statement
      FROM tables
    UNION ALL
    SELECT 2, format('CREATE UNIQUE INDEX ON %%I.%%I (%%s)', %(schema)s::text, t.relname,
                     (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY k.nth)
                        FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (number, nth)
                        JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.number))
      FROM tables t JOIN pg_index i ON i.indrelid = t.oid AND i.indisprimary
    UNION ALL
    SELECT 3, replace(pg_get_functiondef(p.oid), 'FUNCTION public.', format('FUNCTION %%I.', %(schema)s::text))
      FROM pg_proc p
     WHERE p.pronamespace = 'public'::regnamespace AND p.prokind = 'f'
       AND EXISTS (SELECT FROM tables t WHERE t.reltype = ANY(p.proargtypes))
    UNION ALL
    SELECT 4, format('CREATE FUNCTION %%I.interlock_signal(%%s) RETURNS void LANGUAGE plpgsql AS ''BEGIN END''',
                     %(schema)s::text, pg_get_function_identity_arguments(p.oid))
      FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.proname = 'interlock_signal'
    UNION ALL
    SELECT 5, replace(pg_get_triggerdef(g.oid), ' ON public.', format(' ON %%I.', %(schema)s::text))
      FROM pg_trigger g JOIN tables t ON t.oid = g.tgrelid
     WHERE t.relname IN ('workflow_instances', 'workflow_transitions')
       AND (g.tgname LIKE 'born\_%%' OR g.tgname LIKE 'moved\_%%' OR g.tgname LIKE 'migrated\_%%')
) AS made ORDER BY nth
