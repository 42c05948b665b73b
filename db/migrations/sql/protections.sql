-- What many tables are held to alike, table by table.

-- Kept for ever, but for what can be archived (`key`).
SELECT interlock.protect('interlock.' || kept) FROM unnest(ARRAY[
    'workflow_definitions', 'definition_states', 'definition_transitions',
    'breaker_configurations', 'schema_states', 'anchors', 'anchor_heads', 'link_changes', 'audit_exports', 'archived_instances', 'archived_transitions', 'archived_links',
    'archived_records']) AS kept;
SELECT interlock.protect('interlock.' || kept, 'DELETE') FROM unnest(ARRAY['operators', 'deprecations', 'api_tokens', 'circuit_breakers']) AS kept;
SELECT interlock.protect('interlock.workflow_instances', 'DELETE', 'id');
SELECT interlock.protect('interlock.' || typed, 'DELETE', key)
  FROM (SELECT DISTINCT typed, key FROM interlock.kinds() WHERE type NOT IN ('circuit_breaker', 'operator_grant', 'deprecation', 'api_token')) AS k;
SELECT interlock.protect('interlock.' || kept, key => key)
  FROM (VALUES ('workflow_transitions', 'id'), ('patches', 'patch_id'), ('commands', 'workflow_id'), ('plans', 'run_id'))
       AS k (kept, key);

-- A typed row's state is what its history says, once all moves of its transaction are made. A function for each kind: one for
-- all would have to prepare its query anew for every row.
DO $$
DECLARE
    kind record;
BEGIN
    FOR kind IN SELECT DISTINCT typed, key, state FROM interlock.kinds() LOOP
        EXECUTE format('CREATE FUNCTION interlock.state_in_history_%1$s() RETURNS trigger LANGUAGE plpgsql AS $body$
            DECLARE
                written text;
                actual  text;
            BEGIN
                SELECT t.%2$I, i.current_state INTO written, actual  -- both are gone if they were archived
                  FROM (SELECT NEW.%3$I AS id) AS moved
                  LEFT JOIN interlock.%1$I t ON t.%3$I = moved.id
                  LEFT JOIN interlock.workflow_instances i ON i.id = moved.id;
                IF written IS DISTINCT FROM actual THEN
                    RAISE EXCEPTION ''%% %% says %%, but its history says %%'', TG_TABLE_NAME, NEW.%3$I, written, actual
                        USING ERRCODE = ''check_violation'', HINT = ''Fire a trigger instead: interlock fire REF TRIGGER --by WHO'';
                END IF;
                RETURN NULL;
            END $body$', kind.typed, kind.state, kind.key);
        EXECUTE format('CREATE CONSTRAINT TRIGGER state_in_history AFTER INSERT OR UPDATE OF %2$I ON interlock.%1$I
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION interlock.state_in_history_%1$s()',
            kind.typed, kind.state);
    END LOOP;
END $$;

-- CHECK-9: no time in the future, but one that history has: a clock may have been set back since.
CREATE FUNCTION interlock.not_in_future() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    written jsonb := to_jsonb(NEW);
    latest  timestamptz;
    named   text;
BEGIN
    SELECT GREATEST(clock_timestamp(), i.created_at, (SELECT max(t.created_at) FROM interlock.workflow_transitions t
                                                       WHERE t.workflow_id = i.id)) INTO latest
      FROM interlock.workflow_instances i WHERE i.id = (written->>TG_ARGV[0])::uuid;
    FOREACH named IN ARRAY TG_ARGV[1:] LOOP
        IF (written->>named)::timestamptz > latest
           AND (TG_OP = 'INSERT' OR (written->>named)::timestamptz > COALESCE((to_jsonb(OLD)->>named)::timestamptz, latest))
        THEN
            RAISE EXCEPTION '% of % % is in the future: %', named, TG_TABLE_NAME, written->>TG_ARGV[0], written->>named
                USING ERRCODE = 'check_violation';
        END IF;
    END LOOP;
    RETURN NEW;
END $$;

DO $$
DECLARE
    kind  record;
    times text;
BEGIN
    FOR kind IN SELECT DISTINCT typed, key, of_kind.times FROM interlock.kinds() JOIN (VALUES
        ('runs', ARRAY['created_at', 'started_at', 'completed_at']),
        ('workstreams', ARRAY['created_at', 'updated_at', 'completed_at']),
        ('tasks', ARRAY['created_at', 'started_at', 'completed_at']),
        ('workers', ARRAY['created_at', 'last_heartbeat', 'shutdown_at']),
        ('patch_ledger_entries', ARRAY['created_at', 'updated_at', 'quarantined_at', 'rolled_back_at']),
        ('test_gates', ARRAY['created_at', 'started_at', 'completed_at']),
        ('circuit_breakers', ARRAY['updated_at', 'opened_at', 'last_failure_at']),
        ('supervised_workers', ARRAY['created_at', 'updated_at', 'last_heartbeat']),
        ('jobs', ARRAY['created_at', 'started_at', 'completed_at'])
    ) AS of_kind (typed, times) USING (typed) LOOP
        SELECT string_agg(format('NEW.%I', each), ', ') INTO times FROM unnest(kind.times) AS each;
        EXECUTE format('CREATE TRIGGER not_in_future BEFORE INSERT OR UPDATE ON interlock.%I FOR EACH ROW
            WHEN (GREATEST(%s) > clock_timestamp()) EXECUTE FUNCTION interlock.not_in_future(%L, %s)',
            kind.typed, times, kind.key, (SELECT string_agg(quote_literal(each), ', ') FROM unnest(kind.times) AS each));
    END LOOP;
END $$;

-- Whom something belongs to is what its work goes by ever after; so is what limits count it as (LIMIT-3).
DO $$
DECLARE
    owned record;
BEGIN
    FOR owned IN SELECT * FROM (VALUES
        ('workstreams', ARRAY['run_id', 'phase_id', 'phase']), ('tasks', ARRAY['workstream_id', 'run_id', 'kind', 'limit_key']),
        ('effects', ARRAY['workflow_id', 'limit_key']),
        ('test_gates', ARRAY['workstream_id', 'run_id']),
        ('patch_ledger_entries', ARRAY['patch_id', 'workstream_id', 'run_id', 'task_id'])
    ) AS o (named, columns) LOOP
        EXECUTE format('CREATE TRIGGER belongs_fixed BEFORE UPDATE OF %s ON interlock.%I FOR EACH ROW WHEN (%s)
                        EXECUTE FUNCTION interlock.fixed(%L)',
                       (SELECT string_agg(format('%I', c), ', ') FROM unnest(owned.columns) AS c), owned.named,
                       (SELECT string_agg(format('OLD.%1$I IS DISTINCT FROM NEW.%1$I', c), ' OR ')
                          FROM unnest(owned.columns) AS c),
                       (SELECT string_agg(c, ', ') FROM unnest(owned.columns) AS c));
    END LOOP;
END $$;

-- The archive takes only what stands in these tables, as it stands there.
SELECT interlock.bound('interlock.' || c.relname, a.attname, CASE c.relname WHEN 'plans' THEN 67108864 ELSE 2097152 END)
  FROM pg_attribute a
  JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r'
 WHERE c.relnamespace = 'interlock'::regnamespace AND NOT starts_with(c.relname, 'archived_') AND a.atttypid = 'jsonb'::regtype AND NOT a.attisdropped;

-- Every column that holds a name or a reason which a caller can choose. What else is text, and why that is free, a test
-- lists.
CREATE FUNCTION interlock.worded() RETURNS TABLE (worded text, named text, kind text) LANGUAGE sql IMMUTABLE AS $$
    VALUES ('workflow_definitions', 'type', 'name'), ('workflow_definitions', 'version', 'name'),
           ('workflow_definitions', 'initial_state', 'name'), ('definition_states', 'state', 'name'),
           ('definition_transitions', 'trigger', 'name'), ('definition_transitions', 'event', 'name'),
           ('workflow_instances', 'entity_id', 'name'), ('workflow_instances', 'project', 'name'),
           ('workflow_instances', 'created_by', 'name'),
           ('workflow_links', 'role', 'name'), ('workflow_links', 'inverse', 'name'),
           ('workflow_transitions', 'triggered_by', 'name'), ('workflow_transitions', 'request_id', 'name'),
           ('trigger_requests', 'request_id', 'name'), ('trigger_requests', 'trigger', 'name'),
           ('trigger_requests', 'triggered_by', 'name'),
           ('effects', 'name', 'name'), ('effects', 'queue', 'name'), ('effects', 'done_trigger', 'name'), ('effects', 'failed_trigger', 'name'),
           ('effects', 'leased_by', 'name'), ('effects', 'limit_key', 'name'), ('tasks', 'limit_key', 'name'),
           ('operators', 'name', 'name'), ('operators', 'granted_by', 'name'), ('operators', 'revoked_by', 'name'),
           ('operators', 'reason', 'reason'),
           ('api_tokens', 'name', 'name'), ('api_tokens', 'projects', 'names'), ('api_tokens', 'issued_by', 'name'),
           ('api_tokens', 'reason', 'reason'), ('api_tokens', 'ended_by', 'name'),
           ('deprecations', 'name', 'empty or name'), ('deprecations', 'deprecated_by', 'name'),
           ('deprecations', 'reason', 'reason'), ('deprecations', 'guide', 'empty or reason'),
           ('deprecations', 'removal_proposed_by', 'name'), ('deprecations', 'removed_by', 'name'),
           ('phases', 'phase_id', 'name'), ('workstreams', 'affinity', 'names'),
           ('tasks', 'kind', 'name'), ('tasks', 'required_capabilities', 'names'), ('tasks', 'affinity', 'names'),
           ('workers', 'drained_by', 'name'), ('workers', 'drain_reason', 'reason'),
           ('workers', 'name', 'name'), ('workers', 'worker_type', 'name'), ('workers', 'capabilities', 'names'),
           ('circuit_breakers', 'tool_id', 'name'),
           ('breaker_configurations', 'configured_by', 'name'), ('breaker_configurations', 'reason', 'reason'),
           ('supervised_workers', 'workspace_id', 'name'), ('supervised_workers', 'tasks', 'names'),
           ('jobs', 'task_description', 'empty or words'),
           ('patches', 'patch_id', 'name'), ('patches', 'created_by', 'name'),
           ('patch_ledger_entries', 'commit_sha', 'name')
$$;

DO $$
DECLARE
    each   record;
    asked  text;
    blamed text;
    plain  text;  -- whether all are of printable ASCII without a blank, as most are: then nothing else is asked. No WHEN asks it, which
                  -- PostgreSQL would prepare anew for each statement
BEGIN
    FOR each IN SELECT worded, array_agg(named) AS columns FROM interlock.worded() GROUP BY worded LOOP
        SELECT string_agg(
                   CASE kind WHEN 'name' THEN format('interlock.is_name(NEW.%I)', named)
                             WHEN 'names' THEN format('interlock.are_names(NEW.%I)', named)
                             ELSE format('interlock.is_worded(%L, NEW.%I)', kind, named) END, ' AND '),
               string_agg(
                   CASE kind WHEN 'names'
                        THEN format('PERFORM interlock.refuse_wording(%L, ''name'', n) FROM unnest(NEW.%I) AS n;',
                                    each.worded || '.' || named, named)
                        ELSE format('PERFORM interlock.refuse_wording(%L, %L, NEW.%I);',
                                    each.worded || '.' || named, kind, named) END, ' '),
               string_agg(format(CASE kind WHEN 'names' THEN 'coalesce(array_to_string(NEW.%I, ''''), '''')'
                                           ELSE 'coalesce(NEW.%I, '''')' END, named), ' || ') || ' ~ ''^[!-~]*$'''
               || string_agg(format(CASE kind WHEN 'names' THEN ' AND ('''' <> ALL (NEW.%I)) IS NOT FALSE'
                                              ELSE ' AND (NEW.%I <> '''') IS NOT FALSE' END, named), '')
          INTO asked, blamed, plain
          FROM interlock.worded() WHERE worded = each.worded;
        IF each.worded = 'trigger_requests' THEN  -- what an override says of who and why
            asked := asked || ' AND (NEW.origin <> ''override'' OR (interlock.is_name(NEW.metadata->>''operator'')'
                              ' AND interlock.is_reason(NEW.metadata->>''reason'')))';
            blamed := blamed || ' IF NEW.origin = ''override'' THEN'
                ' PERFORM interlock.refuse_wording(''operator'', ''name'', NEW.metadata->>''operator'');'
                ' PERFORM interlock.refuse_wording(''reason'', ''reason'', NEW.metadata->>''reason''); END IF;';
            plain := plain || ' AND NEW.origin <> ''override''';
        END IF;
        EXECUTE format('CREATE FUNCTION interlock.worded_%s() RETURNS trigger LANGUAGE plpgsql AS $body$
            BEGIN
                IF (%s) IS NOT TRUE THEN
                    IF NOT (%s) THEN
                        %s
                    END IF;
                END IF;
                RETURN NEW;
            END $body$', each.worded, plain, asked, blamed);
        EXECUTE format('CREATE TRIGGER worded BEFORE INSERT OR UPDATE OF %s ON interlock.%I FOR EACH ROW
            EXECUTE FUNCTION interlock.worded_%s()',
            (SELECT string_agg(quote_ident(c), ', ') FROM unnest(each.columns) AS c), each.worded, each.worded);
    END LOOP;
END $$;

SELECT interlock.always();
