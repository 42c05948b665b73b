-- Roles that own or use schema interlock. Roles belong to the whole server: installations with the same schema name share
-- them. Logins are made members:
--   interlock_owner    owns everything; for `interlock migrate` only
--   interlock_engine   workers, beat, the exporter, and operators' commands
--   interlock_client   applications: create instances, fire triggers, read
--   interlock_auditor  reads everything but the tokens of claims
DO $$
DECLARE
    named text;
BEGIN
    FOREACH named IN ARRAY ARRAY['interlock_owner', 'interlock_engine', 'interlock_client', 'interlock_auditor'] LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', named);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN  -- it is there, or another session is creating it
        END;
    END LOOP;
END $$;
