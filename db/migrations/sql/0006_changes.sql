-- Change control: live instances move to another version of their definition, and what is deprecated says so.

-- Migration ---------------------------------------------------------------------------------------------------------------
-- A move to another version is an event like any other: in the chain, under the lane's lock, refused where it does not fit.
-- Its trigger is no name that a definition can have. It is written before the instance's row changes. A state that the new
-- version has stays what it is; nothing is ended or begun again this way: that is what triggers are for.

CREATE FUNCTION interlock_check_migration(event workflow_transitions, instance workflow_instances, stood text, under text)
    RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    refused text;
BEGIN
    IF NOT interlock_is_operator(event.triggered_by) THEN
        RAISE EXCEPTION 'migration of % by %: no operator', event.workflow_id, COALESCE(event.triggered_by, '(nobody)')
            USING ERRCODE = 'insufficient_privilege', HINT = 'interlock operator list; interlock operator grant NAME';
    END IF;
    refused := CASE
        WHEN event.from_state <> stood THEN 'it stands in ' || stood
        WHEN event.metadata->>'from_version' IS DISTINCT FROM under OR event.definition_version = under
            THEN 'it is under version ' || under
        WHEN COALESCE(event.metadata->>'reason', '') = '' THEN 'no reason is given'
        WHEN EXISTS (SELECT FROM definition_removals
                      WHERE type = instance.workflow_type AND version = event.definition_version)
            THEN 'the new version was removed'
        WHEN (SELECT terminal FROM definition_states
               WHERE type = instance.workflow_type AND version = under AND state = stood)
            THEN stood || ' is terminal'
        WHEN (SELECT terminal FROM definition_states
               WHERE type = instance.workflow_type AND version = event.definition_version AND state = event.to_state)
             IS DISTINCT FROM false
            THEN 'the new version has no such state, or ends there'
        WHEN event.to_state <> stood
             AND EXISTS (SELECT FROM definition_states
                          WHERE type = instance.workflow_type AND version = event.definition_version AND state = stood)
            THEN 'the new version has ' || stood || ' too'
        WHEN (event.definition_version LIKE '0.%') <> (under LIKE '0.%')
             AND EXISTS (SELECT FROM interlock_kinds() WHERE type = instance.workflow_type)
            THEN 'versions 0.x have no typed row'
    END;
    IF refused IS NOT NULL THEN
        RAISE EXCEPTION 'illegal migration of % % (%) from % to version %, % → %: %',
            instance.workflow_type, instance.entity_id, event.workflow_id, under, event.definition_version,
            event.from_state, event.to_state, refused
            USING ERRCODE = 'check_violation', HINT = 'interlock definitions migrate TYPE --from V1 --to V2 --dry-run';
    END IF;
END $$;

-- The typed row follows where a state got another name; its CHECKs decide whether it can stand there.
CREATE FUNCTION interlock_migrated() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kind record;
    told jsonb;
BEGIN
    IF NEW.trigger <> 'definition.migrate' OR NEW.from_state = NEW.to_state OR NEW.definition_version LIKE '0.%' THEN
        RETURN NULL;
    END IF;
    SELECT * INTO kind FROM interlock_kinds() WHERE type = NEW.workflow_type;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    EXECUTE format('UPDATE %I t SET %I = $1 WHERE %I = $2 RETURNING to_jsonb(t)', kind.typed, kind.state, kind.key)
       INTO told USING NEW.to_state, NEW.workflow_id;
    IF NEW.workflow_type = 'patch_ledger' THEN
        UPDATE patch_ledger_entries
           SET updated_at = GREATEST(NEW.created_at, updated_at),
               state_history = state_history || interlock_past(NEW)
         WHERE ledger_id = NEW.workflow_id;
    END IF;
    IF told->>'run_id' IS NOT NULL THEN
        PERFORM interlock_signal(
            (told->>'run_id')::uuid, NEW.workflow_type, NEW.workflow_id,
            CASE NEW.workflow_type WHEN 'run' THEN NULL WHEN 'workstream' THEN told->>'run_id'
                                   ELSE told->>'workstream_id' END::uuid,
            NEW.from_state, NEW.to_state, COALESCE((told->>'is_critical')::boolean, false));
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER migrated_typed AFTER INSERT ON workflow_transitions
    FOR EACH ROW EXECUTE FUNCTION interlock_migrated();
ALTER TABLE workflow_transitions ENABLE ALWAYS TRIGGER migrated_typed;

-- Deprecation (SSOT 9.1.3) --------------------------------------------------------------------------------------------------
-- What is not to be used any more: a version, or a state or trigger of one. Announced here, never taken back; whoever uses
-- it is told, and counted. A version is removed once its time is over and nothing lives under it.

CREATE TABLE deprecations (
    id            bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    type          varchar(50)  NOT NULL,
    version       varchar(20)  NOT NULL,
    kind          varchar(10)  NOT NULL CHECK (kind IN ('version', 'state', 'trigger')),
    name          varchar(100) NOT NULL CHECK ((kind = 'version') = (name = '')),
    deprecated_by varchar(100) NOT NULL CHECK (deprecated_by <> ''),
    reason        text         NOT NULL CHECK (reason <> ''),
    guide         text         NOT NULL DEFAULT '',
    deprecated_at timestamptz  NOT NULL DEFAULT now(),
    remove_after  timestamptz  NOT NULL CHECK (remove_after >= deprecated_at),
    UNIQUE (type, version, kind, name),
    FOREIGN KEY (type, version) REFERENCES workflow_definitions (type, version)
);

-- Counted in the commit of the move, in a row of the move's lane: nobody waits for anybody.
CREATE TABLE deprecation_uses (
    deprecation_id bigint      NOT NULL REFERENCES deprecations (id),
    lane           smallint    NOT NULL,
    uses           bigint      NOT NULL CHECK (uses > 0),
    last_used_at   timestamptz NOT NULL,
    PRIMARY KEY (deprecation_id, lane)
);

CREATE TABLE definition_removals (
    type       varchar(50)  NOT NULL,
    version    varchar(20)  NOT NULL,
    removed_by varchar(100) NOT NULL,
    reason     text         NOT NULL CHECK (reason <> ''),
    removed_at timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (type, version),
    FOREIGN KEY (type, version) REFERENCES workflow_definitions (type, version)
);

CREATE FUNCTION interlock_check_deprecation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.deprecated_by <> 'the code' AND NOT interlock_is_operator(NEW.deprecated_by) THEN
        RAISE EXCEPTION 'deprecation of % % by %: no operator', NEW.type, NEW.version, NEW.deprecated_by
            USING ERRCODE = 'insufficient_privilege', HINT = 'interlock operator list; interlock operator grant NAME';
    END IF;
    IF NOT (CASE NEW.kind
        WHEN 'version' THEN true
        WHEN 'state' THEN EXISTS (SELECT FROM definition_states
                                   WHERE type = NEW.type AND version = NEW.version AND state = NEW.name)
        ELSE EXISTS (SELECT FROM definition_transitions
                      WHERE type = NEW.type AND version = NEW.version AND trigger = NEW.name)
    END) THEN
        RAISE EXCEPTION '% % has no % %', NEW.type, NEW.version, NEW.kind, NEW.name USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

-- Nobody is born while this looks for the living.
CREATE FUNCTION interlock_check_removal() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    due timestamptz;
BEGIN
    LOCK TABLE workflow_instances IN SHARE ROW EXCLUSIVE MODE;
    IF NOT interlock_is_operator(NEW.removed_by) THEN
        RAISE EXCEPTION 'removal of % % by %: no operator', NEW.type, NEW.version, NEW.removed_by
            USING ERRCODE = 'insufficient_privilege', HINT = 'interlock operator list; interlock operator grant NAME';
    END IF;
    SELECT remove_after INTO due FROM deprecations WHERE type = NEW.type AND version = NEW.version AND kind = 'version';
    IF due IS NULL OR due > now() THEN
        RAISE EXCEPTION '% % is not to be removed before %', NEW.type, NEW.version, COALESCE(due::text, 'it is deprecated')
            USING ERRCODE = 'check_violation', HINT = 'interlock definitions deprecate TYPE VERSION';
    END IF;
    IF EXISTS (SELECT FROM workflow_instances i
                 JOIN definition_states s ON s.type = i.workflow_type AND s.version = i.definition_version
                                         AND s.state = i.current_state
                WHERE i.workflow_type = NEW.type AND i.definition_version = NEW.version AND NOT s.terminal) THEN
        RAISE EXCEPTION 'instances live under % %', NEW.type, NEW.version
            USING ERRCODE = 'check_violation', HINT = 'interlock definitions migrate TYPE --from V1 --to V2 --dry-run';
    END IF;
    RETURN NEW;
END $$;

-- Once a statement, however many are born in it.
CREATE FUNCTION interlock_check_births() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    gone record;
BEGIN
    SELECT r.* INTO gone
      FROM definition_removals r
     WHERE EXISTS (SELECT FROM changed c WHERE c.workflow_type = r.type AND c.definition_version = r.version)
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a % % cannot begin: this version was removed at %', gone.type, gone.version, gone.removed_at
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER version_stands AFTER INSERT ON workflow_instances REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION interlock_check_births();
ALTER TABLE workflow_instances ENABLE ALWAYS TRIGGER version_stands;

CREATE TRIGGER checked BEFORE INSERT ON deprecations FOR EACH ROW EXECUTE FUNCTION interlock_check_deprecation();
CREATE TRIGGER checked BEFORE INSERT ON definition_removals FOR EACH ROW EXECUTE FUNCTION interlock_check_removal();

ALTER TABLE deprecations ENABLE ALWAYS TRIGGER checked;
ALTER TABLE definition_removals ENABLE ALWAYS TRIGGER checked;
SELECT interlock_protect(kept) FROM unnest(ARRAY['deprecations', 'definition_removals']::regclass[]) AS kept;

-- Policies (SSOT 8) that a definition cannot hold by itself: docs/policies.md says which is held where. ------------------------

-- 8.3.1: what begins, is changed and ends does so in this order. (Runs, workstreams, tasks, workers and patches: 0002.)
ALTER TABLE test_gates ADD CHECK (started_at >= created_at), ADD CHECK (completed_at >= started_at);
ALTER TABLE jobs ADD CHECK (started_at >= created_at), ADD CHECK (completed_at >= created_at),
    ADD CHECK (completed_at >= started_at);
ALTER TABLE uet_workers ADD CHECK (last_heartbeat >= created_at), ADD CHECK (terminated_at >= created_at);
ALTER TABLE supervised_workers ADD CHECK (updated_at >= created_at);

-- 8.3.3: no time in the future, but one that history told: a clock may have been set back since.
CREATE FUNCTION interlock_not_in_future() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    written jsonb := to_jsonb(NEW);
    latest  timestamptz;
    named   text;
BEGIN
    SELECT GREATEST(clock_timestamp(), i.created_at, (SELECT max(t.created_at) FROM workflow_transitions t
                                                       WHERE t.workflow_id = i.id)) INTO latest
      FROM workflow_instances i WHERE i.id = (written->>TG_ARGV[0])::uuid;
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
    FOR kind IN SELECT typed, key, told.times FROM interlock_kinds() JOIN (VALUES
        ('runs', ARRAY['created_at', 'started_at', 'completed_at']),
        ('workstreams', ARRAY['created_at', 'updated_at', 'completed_at']),
        ('tasks', ARRAY['created_at', 'started_at', 'completed_at']),
        ('workers', ARRAY['created_at', 'last_heartbeat', 'shutdown_at']),
        ('uet_workers', ARRAY['created_at', 'last_heartbeat', 'terminated_at']),
        ('patch_ledger_entries', ARRAY['created_at', 'updated_at', 'quarantined_at', 'rolled_back_at']),
        ('test_gates', ARRAY['created_at', 'started_at', 'completed_at']),
        ('circuit_breakers', ARRAY['updated_at', 'opened_at', 'last_failure_at']),
        ('supervised_workers', ARRAY['created_at', 'updated_at']),
        ('jobs', ARRAY['created_at', 'started_at', 'completed_at'])
    ) AS told (typed, times) USING (typed) LOOP
        SELECT string_agg(format('NEW.%I', each), ', ') INTO times FROM unnest(kind.times) AS each;
        EXECUTE format('CREATE TRIGGER not_in_future BEFORE INSERT OR UPDATE ON %I FOR EACH ROW
            WHEN (GREATEST(%s) > clock_timestamp()) EXECUTE FUNCTION interlock_not_in_future(%L, %s)',
            kind.typed, times, kind.key, (SELECT string_agg(quote_literal(each), ', ') FROM unnest(kind.times) AS each));
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER not_in_future', kind.typed);
    END LOOP;
END $$;

-- 8.4: what depends on something does not begin before that is done. A task's dependencies and gates are in its CHECK
-- (`queued` takes `unmet = 0`); these are the other kinds. An operator may give up a workstream that waits: its way to `failed`
-- leads through `ready`.
CREATE FUNCTION interlock_dependencies_met() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    missing text;
BEGIN
    IF NEW.definition_version LIKE '0.%' OR NEW.trigger = 'definition.migrate'
       OR NOT (NEW.workflow_type = 'task' AND NEW.to_state = 'running'
               OR NEW.workflow_type = 'workstream' AND NEW.to_state = 'ready' AND NOT NEW.metadata ? 'operator'
               OR NEW.workflow_type = 'test_gate' AND NEW.to_state = 'RUNNING') THEN
        RETURN NULL;
    END IF;
    IF NEW.workflow_type = 'task' THEN
        SELECT array_to_string(ARRAY(SELECT unnest(t.required_capabilities) EXCEPT SELECT unnest(w.capabilities)), ', ')
          INTO missing
          FROM tasks t JOIN workers w ON w.worker_id = t.worker_id
         WHERE t.task_id = NEW.workflow_id;
        missing := 'its worker has no ' || NULLIF(missing, '');
    ELSE
        SELECT string_agg(i.entity_id || ' is ' || i.current_state, ', ') INTO missing
          FROM workflow_links l JOIN workflow_instances i ON i.id = l.target_id
         WHERE l.source_id = NEW.workflow_id AND l.role = 'depends_on'
           AND i.current_state <> CASE NEW.workflow_type WHEN 'workstream' THEN 'completed' ELSE 'PASSED' END;
    END IF;
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION '% % cannot enter %: %', NEW.workflow_type, NEW.workflow_id, NEW.to_state, missing
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER policy_dependencies AFTER INSERT ON workflow_transitions  -- by name after `moved_typed`
    FOR EACH ROW EXECUTE FUNCTION interlock_dependencies_met();
ALTER TABLE workflow_transitions ENABLE ALWAYS TRIGGER policy_dependencies;
