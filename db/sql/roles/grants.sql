-- What each role may do: the whole of it, after every migration, whatever was granted before. Run as the owner.
-- The owner grants nothing to PUBLIC. Who writes a table is still held to the triggers on it.
REVOKE ALL ON SCHEMA interlock FROM PUBLIC, interlock_engine, interlock_client, interlock_auditor;
REVOKE ALL ON ALL TABLES IN SCHEMA interlock FROM PUBLIC, interlock_engine, interlock_client, interlock_auditor;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA interlock FROM PUBLIC, interlock_engine, interlock_client, interlock_auditor;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA interlock FROM PUBLIC, interlock_engine, interlock_client, interlock_auditor;
GRANT USAGE ON SCHEMA interlock TO interlock_engine, interlock_client, interlock_auditor;

-- The engine reads everything, adds rows, and changes and deletes those that need not be kept. Definitions and the state of
-- the schema are recorded by `migrate`; functions fill the archive, count refusals, and keep which rights are narrowed and
-- which requests were deleted.
GRANT SELECT ON ALL TABLES IN SCHEMA interlock TO interlock_engine;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA interlock TO interlock_engine;
DO $$
DECLARE
    held record;
BEGIN
    FOR held IN
        SELECT c.oid::regclass AS named, COALESCE(bit_or(t.tgtype), 0) AS refused  -- 8: DELETE, 16: UPDATE
          FROM pg_class c
          LEFT JOIN pg_trigger t ON t.tgrelid = c.oid AND t.tgname = 'kept'
         WHERE c.relnamespace = 'interlock'::regnamespace AND c.relkind = 'r'
           AND c.relname !~ '^(alembic_version|workflow_definitions|definition_(states|transitions)|schema_states|refusal_counts|narrowings|pruned|archived_.*)$'
         GROUP BY c.oid
    LOOP
        EXECUTE format('GRANT SELECT%s%s%s ON %s TO interlock_engine',
                       CASE WHEN held.named <> 'interlock.task_claims'::regclass THEN ', INSERT' ELSE '' END,  -- `take_claim`
                       CASE WHEN held.refused & 16 = 0 THEN ', UPDATE' ELSE '' END,
                       CASE WHEN held.refused & 8 = 0 THEN ', DELETE' ELSE '' END, held.named);
        IF current_setting('server_version_num')::integer >= 170000 THEN  -- before 17, autovacuum alone does it
            EXECUTE format('GRANT MAINTAIN ON %s TO interlock_engine', held.named);
        END IF;
    END LOOP;
END $$;

-- Clients and auditors read everything but the tokens of claims, which are their holders' proof.
GRANT SELECT ON ALL TABLES IN SCHEMA interlock TO interlock_client, interlock_auditor;
REVOKE SELECT ON interlock.task_claims FROM interlock_client, interlock_auditor;
DO $$
BEGIN
    EXECUTE (SELECT format('GRANT SELECT (%s) ON interlock.task_claims TO interlock_client, interlock_auditor',
                           string_agg(quote_ident(attname), ', '))
               FROM pg_attribute
              WHERE attrelid = 'interlock.task_claims'::regclass AND attnum > 0 AND NOT attisdropped AND attname <> 'token');
END $$;

-- Functions run with the rights of who calls them, except those that run with the owner's: clients have no other way to write.
DO $$
DECLARE
    held record;
BEGIN
    FOR held IN SELECT p.oid::regprocedure AS named, p.prosecdef AS definer, p.proname
                  FROM pg_proc p WHERE p.pronamespace = 'interlock'::regnamespace
                    AND NOT (p.prosecdef AND p.prorettype = 'trigger'::regtype) LOOP  -- PostgreSQL alone calls these
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', held.named,
                       CASE WHEN NOT held.definer THEN 'interlock_engine, interlock_client, interlock_auditor'
                            WHEN held.proname IN ('archive', 'take_claim') THEN 'interlock_engine'
                            ELSE 'interlock_engine, interlock_client' END);
    END LOOP;
END $$;
