-- What keeps the typed rows projections: what every event says, and who writes a state.

-- Required metadata (SSOT 7.2.3): what the trigger did not say itself is filled in before the event is hashed.
CREATE FUNCTION interlock_add_facts() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    facts jsonb;
BEGIN
    IF NEW.definition_version LIKE '0.%' THEN
        RETURN NEW;
    END IF;
    CASE NEW.workflow_type
        WHEN 'task' THEN
            SELECT jsonb_build_object(
                       'worker_id', worker_id, 'retry_count', retry_count, 'exit_code', NULL,
                       'duration_seconds', CASE WHEN NEW.from_state = 'running'
                                                THEN round(extract(epoch FROM now() - started_at), 3) END,
                       'timeout_occurred', NEW.trigger = 'timeout_exceeded')
              INTO facts FROM tasks WHERE task_id = NEW.workflow_id;
            IF NEW.to_state = 'blocked' THEN
                NEW.metadata := NEW.metadata || jsonb_build_object('blocked_by', interlock_blocked_by(NEW.workflow_id));
            END IF;
        WHEN 'workstream' THEN
            SELECT jsonb_build_object(
                       'total_tasks', pending + queued + running + validating + completed + failed + retrying + cancelled
                                      + blocked,
                       'completed_tasks', completed, 'failed_tasks', failed, 'critical_failure', critical_failures > 0,
                       'duration_seconds', round(extract(epoch FROM now() - w.created_at), 3))
              INTO facts FROM workstream_counts c JOIN workstreams w USING (ws_id) WHERE ws_id = NEW.workflow_id;
        WHEN 'patch_ledger' THEN
            SELECT jsonb_build_object(
                       'patch_id', patch_id, 'commit_sha', commit_sha,
                       'quarantine_reason', CASE WHEN NEW.to_state = 'quarantined' THEN NEW.metadata->'reason' END,
                       'validation_results', jsonb_build_object(
                           'format', validation_format_passed OR NEW.to_state = 'validated',
                           'scope', validation_scope_passed OR NEW.to_state = 'validated',
                           'constraints', validation_constraints_passed OR NEW.to_state = 'validated',
                           'tests', validation_tests_passed OR NEW.to_state = 'verified')
                           || COALESCE(NEW.metadata->'validation_results', '{}'))  -- each check for itself
              INTO facts FROM patch_ledger_entries WHERE ledger_id = NEW.workflow_id;
            NEW.metadata := NEW.metadata || jsonb_build_object('validation_results', facts->'validation_results');
        WHEN 'worker' THEN
            SELECT jsonb_build_object(
                       'heartbeat_status', CASE WHEN NEW.to_state IN ('unresponsive') OR NEW.trigger = 'max_timeout_exceeded'
                                                THEN 'silent' ELSE 'healthy' END,
                       'current_load', current_load, 'crash_detected', NEW.trigger = 'max_timeout_exceeded',
                       'last_heartbeat_age_seconds', round(extract(epoch FROM now() - last_heartbeat), 3))
              INTO facts FROM workers WHERE worker_id = NEW.workflow_id;
        ELSE
            RETURN NEW;
    END CASE;
    NEW.metadata := COALESCE(facts, '{}') || NEW.metadata;
    RETURN NEW;
END $$;

CREATE TRIGGER add_facts BEFORE INSERT ON workflow_transitions  -- triggers fire by name: before `append`, which hashes
    FOR EACH ROW EXECUTE FUNCTION interlock_add_facts();
ALTER TABLE workflow_transitions ENABLE ALWAYS TRIGGER add_facts;

CREATE FUNCTION interlock_typed_state_is_told() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    written jsonb := to_jsonb(NEW);
    told    text;
BEGIN
    SELECT current_state INTO told FROM workflow_instances WHERE id = (written->>TG_ARGV[0])::uuid;
    -- Another move of the same transaction may have followed: then its own check speaks.
    EXECUTE format('SELECT to_jsonb(t) FROM %I t WHERE %I = $1', TG_TABLE_NAME, TG_ARGV[0])
       INTO written USING (written->>TG_ARGV[0])::uuid;
    IF COALESCE(written->>'state', written->>'status') IS DISTINCT FROM told THEN
        RAISE EXCEPTION '% % says %, but its history says %', TG_TABLE_NAME, written->>TG_ARGV[0],
            COALESCE(written->>'state', written->>'status'), told
            USING ERRCODE = 'check_violation', HINT = 'Fire a trigger instead: interlock fire REF TRIGGER --by WHO';
    END IF;
    RETURN NULL;
END $$;

-- One trigger for all kinds. One for each, with a WHEN, would cost every statement that writes a row more than the row:
-- PostgreSQL reads a trigger's condition anew, from its stored text, in each statement.
DO $$
DECLARE
    told  record;
    cases text;
BEGIN
    FOR told IN VALUES ('born', 'workflow_instances', 'false'),
                       ('moved', 'workflow_transitions', 'NEW.trigger = ''definition.migrate''') LOOP
        SELECT string_agg(format('WHEN %L THEN PERFORM interlock_%s_%s(NEW);', type, told.column1, type), ' ')
          INTO cases FROM interlock_kinds();
        EXECUTE format('CREATE FUNCTION interlock_%s_typed() RETURNS trigger LANGUAGE plpgsql AS $body$
            BEGIN
                IF NEW.definition_version NOT LIKE ''0.%%'' AND NOT (%s) THEN
                    CASE NEW.workflow_type %s ELSE NULL; END CASE;
                END IF;
                RETURN NULL;
            END $body$', told.column1, told.column3, cases);
        EXECUTE format('CREATE TRIGGER %1$s_typed AFTER INSERT ON %2$s FOR EACH ROW EXECUTE FUNCTION interlock_%1$s_typed()',
                       told.column1, told.column2);
        EXECUTE format('ALTER TABLE %2$s ENABLE ALWAYS TRIGGER %1$s_typed', told.column1, told.column2);
    END LOOP;
END $$;

-- Each typed table's triggers.
DO $$
DECLARE
    kind record;
BEGIN
    FOR kind IN SELECT * FROM interlock_kinds() LOOP
        EXECUTE format('CREATE CONSTRAINT TRIGGER state_is_told AFTER INSERT OR UPDATE OF %2$I ON %1$I
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
            EXECUTE FUNCTION interlock_typed_state_is_told(%3$L)', kind.typed, kind.state, kind.key);
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER state_is_told', kind.typed);
        PERFORM interlock_protect(kind.typed::regclass, 'DELETE');
    END LOOP;
END $$;
