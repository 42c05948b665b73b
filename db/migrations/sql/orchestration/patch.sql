-- A patch (docs/spec/patch.md): its text, and its way through the ledger.

CREATE TABLE interlock.patches (
    patch_id   varchar(100) PRIMARY KEY,
    body       text         NOT NULL,
    created_by varchar(100) NOT NULL,
    created_at timestamptz  NOT NULL DEFAULT now()
);

CREATE TABLE interlock.patch_ledger_entries (
    ledger_id                     uuid         PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    patch_id                      varchar(100) NOT NULL REFERENCES interlock.patches (patch_id),
    workstream_id                 uuid         NOT NULL REFERENCES interlock.workstreams (ws_id),
    run_id                        uuid         NOT NULL REFERENCES interlock.runs (run_id),
    task_id                       uuid         REFERENCES interlock.tasks (task_id),
    phase_id                      varchar(100) NOT NULL REFERENCES interlock.phases (phase_id),
    state                         varchar(20)  NOT NULL CHECK (state IN (
                                      'created', 'validated', 'queued', 'applied', 'apply_failed', 'verified',
                                      'committed', 'rolled_back', 'quarantined', 'dropped')),
    validation_format_passed      boolean      NOT NULL DEFAULT false,
    validation_scope_passed       boolean      NOT NULL DEFAULT false,
    validation_constraints_passed boolean      NOT NULL DEFAULT false,
    validation_tests_passed       boolean      NOT NULL DEFAULT false,
    apply_retries                 integer      NOT NULL DEFAULT 0 CHECK (apply_retries BETWEEN 0 AND 3),  -- CHECK-14
    commit_sha                    varchar(64),
    quarantine_reason             text,
    quarantine_metadata           jsonb,
    quarantined_at                timestamptz,
    rollback_reason               text,
    rollback_compensation         jsonb,
    rolled_back_at                timestamptz,
    state_history                 jsonb        NOT NULL DEFAULT '[]',
    created_at                    timestamptz  NOT NULL DEFAULT now(),
    updated_at                    timestamptz  NOT NULL DEFAULT now(),
    metadata                      jsonb        NOT NULL DEFAULT '{}',
    CHECK (state <> 'quarantined' OR quarantine_reason IS NOT NULL),
    CHECK (state <> 'rolled_back' OR rollback_reason IS NOT NULL),
    -- The flags agree with the state (CHECK-13).
    CHECK (state IN ('created', 'quarantined', 'dropped')
           OR (validation_format_passed AND validation_scope_passed AND validation_constraints_passed)),
    CHECK (state NOT IN ('verified', 'committed', 'rolled_back') OR validation_tests_passed),
    CHECK (updated_at >= created_at),
    CHECK (quarantined_at >= created_at),
    CHECK (rolled_back_at >= created_at)
);
CREATE INDEX patch_ledger_entries_workstream ON interlock.patch_ledger_entries (workstream_id);
CREATE INDEX patch_ledger_entries_state ON interlock.patch_ledger_entries (state);
CREATE INDEX patch_ledger_entries_updated ON interlock.patch_ledger_entries (updated_at);
CREATE INDEX patch_ledger_entries_task ON interlock.patch_ledger_entries (task_id);
CREATE INDEX patch_ledger_entries_patch ON interlock.patch_ledger_entries (patch_id);

CREATE FUNCTION interlock.born_patch_ledger(new interlock.workflow_instances) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    workstream interlock.workstreams;
BEGIN
    SELECT * INTO workstream FROM interlock.workstreams WHERE ws_id = (NEW.context->>'workstream_id')::uuid;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'workstream % of patch % does not exist', NEW.context->>'workstream_id', NEW.entity_id
            USING ERRCODE = 'foreign_key_violation';
    END IF;
    INSERT INTO interlock.patch_ledger_entries (ledger_id, patch_id, workstream_id, run_id, task_id, phase_id, state, state_history,
                                      created_at, updated_at, metadata)
    VALUES (NEW.id, NEW.context->>'patch_id', workstream.ws_id, workstream.run_id, (NEW.context->>'task_id')::uuid,
            workstream.phase_id, NEW.current_state,
            jsonb_build_array(jsonb_build_object(
                'from_state', NULL, 'to_state', NEW.current_state, 'timestamp', NEW.created_at, 'metadata', '{}'::jsonb)),
            NEW.created_at, NEW.created_at, interlock.metadata(NEW.context));
    PERFORM interlock.signal(workstream.run_id, 'patch_ledger', NEW.id, workstream.ws_id, NULL, NEW.current_state, false);
END $$;

CREATE FUNCTION interlock.past(event interlock.workflow_transitions) RETURNS jsonb LANGUAGE sql IMMUTABLE  -- PATCH-11
    RETURN jsonb_build_object(
        'from_state', event.from_state, 'to_state', event.to_state, 'timestamp', event.created_at,
        'trigger', event.trigger, 'reason', event.metadata->'reason', 'metadata', event.metadata);

CREATE FUNCTION interlock.moved_patch_ledger(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    moved   interlock.patch_ledger_entries;
    said    jsonb := NEW.metadata;
    results jsonb := COALESCE(said->'validation_results', '{}');
BEGIN
    UPDATE interlock.patch_ledger_entries
       SET state = NEW.to_state,
           validation_format_passed = COALESCE((results->>'format')::boolean,
                                               NEW.to_state = 'validated' OR validation_format_passed),
           validation_scope_passed = COALESCE((results->>'scope')::boolean,
                                              NEW.to_state = 'validated' OR validation_scope_passed),
           validation_constraints_passed = COALESCE((results->>'constraints')::boolean,
                                                    NEW.to_state = 'validated' OR validation_constraints_passed),
           validation_tests_passed = NEW.to_state = 'verified' OR validation_tests_passed,
           apply_retries = apply_retries + CASE WHEN NEW.trigger = 'retry_apply' THEN 1 ELSE 0 END,
           commit_sha = COALESCE(said->>'commit_sha', commit_sha),
           quarantine_reason = CASE WHEN NEW.to_state = 'quarantined' THEN said->>'reason' ELSE quarantine_reason END,
           quarantine_metadata = CASE WHEN NEW.to_state = 'quarantined' THEN said ELSE quarantine_metadata END,
           quarantined_at = CASE WHEN NEW.to_state = 'quarantined' THEN GREATEST(NEW.created_at, created_at)
                                 ELSE quarantined_at END,
           rollback_reason = CASE WHEN NEW.to_state = 'rolled_back' THEN said->>'reason' ELSE rollback_reason END,
           rollback_compensation = CASE WHEN NEW.to_state = 'rolled_back' THEN said->'compensation'
                                        ELSE rollback_compensation END,
           rolled_back_at = CASE WHEN NEW.to_state = 'rolled_back' THEN GREATEST(NEW.created_at, created_at)
                                 ELSE rolled_back_at END,
           state_history = state_history || interlock.past(NEW),
           metadata = metadata || CASE WHEN said ? 'commit_sha' THEN jsonb_build_object('commit_sha', said->'commit_sha')
                                       ELSE '{}' END,
           updated_at = GREATEST(NEW.created_at, updated_at)
     WHERE ledger_id = NEW.workflow_id
    RETURNING * INTO moved;
    PERFORM interlock.signal(moved.run_id, 'patch_ledger', moved.ledger_id, moved.workstream_id, NEW.from_state,
                             NEW.to_state, false);
END $$;

CREATE TRIGGER past_fixed BEFORE UPDATE OF state_history ON interlock.patch_ledger_entries FOR EACH ROW  -- CHECK-18
    WHEN (NEW.state_history IS DISTINCT FROM OLD.state_history
          AND (jsonb_array_length(NEW.state_history) <> jsonb_array_length(OLD.state_history) + 1
               OR NEW.state_history - (-1) <> OLD.state_history))
    EXECUTE FUNCTION interlock.fixed('the past recorded in state_history');
