-- What keeps the typed rows projections: what every event says, and who writes a state.

-- Required metadata (EVENT-4): what the trigger did not say itself is filled in before the event is hashed.
CREATE FUNCTION interlock.add_facts() RETURNS trigger LANGUAGE plpgsql AS $$
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
              INTO facts FROM interlock.tasks WHERE task_id = NEW.workflow_id;
            IF NEW.to_state = 'blocked' THEN
                NEW.metadata := NEW.metadata || jsonb_build_object('blocked_by', interlock.blocked_by(NEW.workflow_id));
            END IF;
        WHEN 'workstream' THEN
            SELECT jsonb_build_object(
                       'total_tasks', pending + queued + running + validating + completed + failed + retrying + cancelled
                                      + blocked,
                       'completed_tasks', completed, 'failed_tasks', failed, 'critical_failure', critical_failures > 0,
                       'duration_seconds', round(extract(epoch FROM now() - w.created_at), 3))
              INTO facts FROM interlock.workstream_counts c JOIN interlock.workstreams w USING (ws_id) WHERE ws_id = NEW.workflow_id;
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
              INTO facts FROM interlock.patch_ledger_entries WHERE ledger_id = NEW.workflow_id;
            NEW.metadata := NEW.metadata || jsonb_build_object('validation_results', facts->'validation_results');
        WHEN 'worker', 'uet_worker' THEN
            SELECT jsonb_build_object(
                       'heartbeat_status', CASE WHEN NEW.to_state = 'unresponsive' OR NEW.trigger IN ('max_timeout_exceeded', 'worker_crashed')
                                                THEN 'silent' ELSE 'healthy' END,
                       'current_load', current_load, 'crash_detected', NEW.trigger IN ('max_timeout_exceeded', 'worker_crashed'),
                       'last_heartbeat_age_seconds', round(extract(epoch FROM now() - last_heartbeat), 3))
              INTO facts FROM interlock.workers WHERE worker_id = NEW.workflow_id;
        WHEN 'operator_grant', 'deprecation', 'narrowing', 'limit', 'handover', 'api_token', 'budget', 'brake', 'subscription' THEN
            SELECT NEW.metadata || jsonb_build_object('terms', context - 'secret_sha256') INTO NEW.metadata
              FROM interlock.workflow_instances WHERE id = NEW.workflow_id;
            RETURN NEW;
        ELSE
            RETURN NEW;
    END CASE;
    NEW.metadata := COALESCE(facts, '{}') || NEW.metadata;
    RETURN NEW;
END $$;

CREATE TRIGGER add_facts BEFORE INSERT ON interlock.workflow_transitions  -- triggers fire by name: before `append`, which hashes
    FOR EACH ROW EXECUTE FUNCTION interlock.add_facts();

-- One trigger for all kinds but tasks (`born_tasks`, `moved_tasks`). One for each, with a WHEN, would cost every statement that writes a row more than the row:
-- PostgreSQL reads a trigger's condition anew, from its stored text, in each statement.
DO $$
DECLARE
    event record;
    cases text;
BEGIN
    FOR event IN VALUES ('born', 'workflow_instances', 'false'),
                        ('moved', 'workflow_transitions', 'NEW.trigger = ''definition.migrate''') LOOP
        SELECT string_agg(format('WHEN %L THEN PERFORM interlock.%s_%s(NEW);', type, event.column1, type), ' ')
          INTO cases FROM (SELECT type FROM interlock.kinds() WHERE type <> 'task' UNION ALL VALUES ('phase'), ('schedule')
                            UNION ALL VALUES ('brake')
                            UNION ALL SELECT unnest(ARRAY['approval', 'limit', 'handover', 'budget', 'subscription'])
                             WHERE event.column1 = 'moved') AS k;
        EXECUTE format('CREATE FUNCTION interlock.%s_typed() RETURNS trigger LANGUAGE plpgsql AS $body$
            BEGIN
                IF NEW.definition_version NOT LIKE ''0.%%'' AND NOT (%s) THEN
                    CASE NEW.workflow_type %s ELSE NULL; END CASE;
                END IF;
                RETURN NULL;
            END $body$', event.column1, event.column3, cases);
        EXECUTE format('CREATE TRIGGER %1$s_typed AFTER INSERT ON interlock.%2$s FOR EACH ROW EXECUTE FUNCTION interlock.%1$s_typed()',
                       event.column1, event.column2);
    END LOOP;
END $$;

-- The typed row follows where a state got another name; its CHECKs decide whether it can stand there.
CREATE FUNCTION interlock.migrated() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kind record;
    typed_row jsonb;
BEGIN
    IF NEW.trigger <> 'definition.migrate' OR NEW.from_state = NEW.to_state OR NEW.definition_version LIKE '0.%' THEN
        RETURN NULL;
    END IF;
    SELECT * INTO kind FROM interlock.kinds() WHERE type = NEW.workflow_type;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    EXECUTE format('UPDATE interlock.%I t SET %I = $1 WHERE %I = $2 RETURNING to_jsonb(t)', kind.typed, kind.state, kind.key)
       INTO typed_row USING NEW.to_state, NEW.workflow_id;
    IF NEW.workflow_type = 'patch_ledger' THEN
        UPDATE interlock.patch_ledger_entries
           SET updated_at = GREATEST(NEW.created_at, updated_at),
               state_history = state_history || interlock.past(NEW)
         WHERE ledger_id = NEW.workflow_id;
    END IF;
    IF typed_row->>'run_id' IS NOT NULL THEN
        PERFORM interlock.signal(
            (typed_row->>'run_id')::uuid, NEW.workflow_type, NEW.workflow_id,
            CASE NEW.workflow_type WHEN 'run' THEN NULL WHEN 'workstream' THEN typed_row->>'run_id'
                                   ELSE typed_row->>'workstream_id' END::uuid,
            NEW.from_state, NEW.to_state, COALESCE((typed_row->>'is_critical')::boolean, false));
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER migrated_typed AFTER INSERT ON interlock.workflow_transitions
    FOR EACH ROW EXECUTE FUNCTION interlock.migrated();

-- POLICY-7: what depends on something does not begin before that is done. A task's dependencies and gates are in its CHECK
-- (`queued` takes `unmet = 0`), and its worker's capabilities where it moves (`moved_tasks`); these are the other kinds. An operator may
-- give up a workstream that waits: its way to `failed` leads through `ready`.
CREATE FUNCTION interlock.dependencies_met() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    missing text;
BEGIN
    IF NEW.definition_version LIKE '0.%' OR NEW.trigger = 'definition.migrate'
       OR NOT (NEW.workflow_type = 'workstream' AND NEW.to_state = 'ready' AND NOT NEW.metadata ? 'operator'
               OR NEW.workflow_type = 'test_gate' AND NEW.to_state = 'RUNNING') THEN
        RETURN NULL;
    END IF;
    SELECT string_agg(i.entity_id || ' is ' || i.current_state, ', ') INTO missing
      FROM interlock.workflow_links l JOIN interlock.workflow_instances i ON i.id = l.target_id
     WHERE l.source_id = NEW.workflow_id AND l.role = 'depends_on'
       AND i.current_state <> CASE NEW.workflow_type WHEN 'workstream' THEN 'completed' ELSE 'PASSED' END;
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION '% % cannot enter %: %', NEW.workflow_type, NEW.workflow_id, NEW.to_state, missing
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER policy_dependencies AFTER INSERT ON interlock.workflow_transitions  -- by name after `moved_typed`
    FOR EACH ROW EXECUTE FUNCTION interlock.dependencies_met();
