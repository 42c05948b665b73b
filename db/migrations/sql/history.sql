-- What instances and their history are held to.

-- A recorded definition is whole at once: no state and no move can be slipped in beside what its body says.
CREATE FUNCTION interlock.as_recorded() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    recorded jsonb;
    added    jsonb := to_jsonb(NEW);
BEGIN
    SELECT body INTO recorded FROM interlock.workflow_definitions WHERE type = NEW.type AND version = NEW.version;
    IF NOT COALESCE(
        CASE TG_TABLE_NAME
            WHEN 'definition_states' THEN
                recorded->'states'->(added->>'state') = jsonb_build_object('terminal', added->'terminal')
            ELSE jsonb_strip_nulls(added - 'type' - 'version') IN (SELECT jsonb_array_elements(recorded->'transitions'))
        END, false) THEN
        RAISE EXCEPTION 'definition % % is recorded without %', NEW.type, NEW.version, added - 'type' - 'version'
            USING ERRCODE = 'restrict_violation', HINT = 'Give the changed definition a new version.';
    END IF;
    -- What has ended does not change, but by a move that is declared an exception (POLICY-5).
    IF TG_TABLE_NAME = 'definition_transitions' AND (recorded->'states'->(added->>'source')->>'terminal')::boolean
       AND NOT COALESCE(recorded->'rules' @> jsonb_build_array(
               jsonb_build_object('trigger', added->'trigger', 'exceptional', true)), false) THEN
        RAISE EXCEPTION '% % leaves the terminal state % by %',
            NEW.type, NEW.version, added->>'source', added->>'trigger' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION interlock.born() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    initial text;
BEGIN
    IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN  -- asked here: the call costs eight times as much
        PERFORM interlock.sees_what_is();
    END IF;
    SELECT initial_state INTO initial FROM interlock.workflow_definitions
     WHERE type = NEW.workflow_type AND version = NEW.definition_version;
    IF NEW.created_at > clock_timestamp() THEN
        RAISE EXCEPTION 'a % % cannot begin at %: that is in the future',
            NEW.workflow_type, NEW.definition_version, NEW.created_at USING ERRCODE = 'check_violation';
    END IF;
    IF initial IS DISTINCT FROM NEW.current_state OR NEW.version <> 0 THEN
        RAISE EXCEPTION 'a % % begins in state % at version 0, not in % at %',
            NEW.workflow_type, NEW.definition_version, COALESCE(initial, '(unknown definition)'),
            NEW.current_state, NEW.version
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.workflow_type = 'approval' AND NOT interlock.sound_terms(NEW.context) THEN
        RAISE EXCEPTION 'the terms of approval % are not sound: quorum is a whole number from 1, author a name, deciders a list of names',
            NEW.entity_id USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.born_proof IS NOT NULL THEN
        PERFORM interlock.born_by_token(NEW);
    END IF;
    NEW.born_version := NEW.definition_version;
    NEW.context_sha256 := interlock.digest(NEW.context);
    NEW.bodies := NULL;
    IF NEW.workflow_type = 'patch_ledger' THEN
        SELECT jsonb_build_object('patches', interlock.body_digest(to_jsonb(p))) INTO NEW.bodies
          FROM interlock.patches p WHERE p.patch_id = NEW.context->>'patch_id';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION interlock.identity_fixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.id, OLD.workflow_type, OLD.entity_id, OLD.project, OLD.created_by, OLD.created_at, OLD.born_version,
        OLD.context_sha256)
       = (NEW.id, NEW.workflow_type, NEW.entity_id, NEW.project, NEW.created_by, NEW.created_at, NEW.born_version,
          NEW.context_sha256)
       AND OLD.born_proof IS NOT DISTINCT FROM NEW.born_proof
       -- A plan or a command is stored right after the birth, in its transaction: then its digest is added (`record_body_digests`).
       AND (OLD.bodies IS NOT DISTINCT FROM NEW.bodies
            OR OLD.version = 0 AND OLD.created_at = now() AND pg_trigger_depth() > 1) THEN
        IF OLD.definition_version = NEW.definition_version AND NEW.version >= OLD.version THEN
            RETURN NEW;
        END IF;
        -- Another version of its definition only together with the event that moves it there.
        IF OLD.definition_version <> NEW.definition_version AND NEW.version = OLD.version + 1
           AND EXISTS (SELECT FROM interlock.workflow_transitions
                        WHERE workflow_id = NEW.id AND seq = NEW.version AND trigger = 'definition.migrate'
                          AND definition_version = NEW.definition_version) THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'identity, definition and past of instance % cannot change', OLD.id
        USING ERRCODE = 'restrict_violation';
END $$;

-- Before a history row is kept: it continues its instance's history without a gap, the definition has the move, an accepted
-- request asks for it at this version, and the chain goes on. Right, order, time and hashes are the database's own, whatever the statement says. Time never goes back
-- within an instance: a transaction that began earlier may come later, and a clock may be set back. Its place in commit order (xid,
-- position) never goes back either: whoever got a transaction id before it waited for the instance has to begin anew. (Above the
-- snapshot's xmax, the id is one of another server's, which a dump brought along.)
CREATE FUNCTION interlock.append() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before record;
    asked  record;
BEGIN
    IF NEW.seq = 1 THEN
        SELECT i.workflow_type, i.entity_id, d.initial_state AS state, d.version, interlock.birth_hash(i) AS hash, i.created_at AS at,
               '0'::xid8 AS xid, EXISTS (SELECT FROM interlock.handovers h WHERE h.workflow_id = i.id) AS frozen INTO before
          FROM interlock.workflow_instances i
          JOIN interlock.workflow_definitions d ON d.type = i.workflow_type AND d.version = i.definition_version
         WHERE i.id = NEW.workflow_id;
    ELSE
        SELECT i.workflow_type, i.entity_id, t.to_state AS state, t.definition_version AS version, t.hash, t.created_at AS at, t.xid,
               EXISTS (SELECT FROM interlock.handovers h WHERE h.workflow_id = i.id) AS frozen INTO before
          FROM interlock.workflow_transitions t JOIN interlock.workflow_instances i ON i.id = t.workflow_id
         WHERE t.workflow_id = NEW.workflow_id AND t.seq = NEW.seq - 1;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'history of instance % has no event before %', NEW.workflow_id, NEW.seq
            USING ERRCODE = 'check_violation';
    END IF;
    IF before.frozen THEN
        RAISE EXCEPTION 'instance % is frozen: it is handed over to another system', NEW.workflow_id
            USING ERRCODE = 'restrict_violation', HINT = 'interlock definitions handover TYPE --back';
    END IF;
    NEW.xid := pg_current_xact_id();
    IF before.xid > NEW.xid AND before.xid < pg_snapshot_xmax(pg_current_snapshot()) THEN
        RAISE EXCEPTION 'instance % was moved by a transaction with a later id', NEW.workflow_id
            USING ERRCODE = 'serialization_failure', HINT = 'Run the transaction again.';
    END IF;
    IF NEW.trigger = 'definition.migrate' THEN
        PERFORM interlock.check_migration(NEW, i, before.state, before.version)
           FROM interlock.workflow_instances i WHERE i.id = NEW.workflow_id;
        NEW.authority := 'operator';
        NEW.proof := interlock.grant_of(NEW.triggered_by);
        NEW.login := session_user;
    ELSE
        SELECT t."by" AS open_to, r.authority, r.proof, r.login, r.origin, r.bound_version INTO asked
          FROM interlock.definition_transitions t
          LEFT JOIN interlock.trigger_requests r
                 ON r.request_id = NEW.request_id AND r.workflow_id = NEW.workflow_id AND r.trigger = NEW.trigger
                    AND r.triggered_by = NEW.triggered_by
                    AND (r.status = 'pending' OR r.status = 'applied' AND r.finished_at = now())  -- in this transaction
         WHERE t.type = before.workflow_type AND t.version = NEW.definition_version
           AND t.source = NEW.from_state AND t.trigger = NEW.trigger AND t.dest = NEW.to_state;
        IF NOT FOUND OR before.state <> NEW.from_state OR before.version <> NEW.definition_version THEN
            RAISE EXCEPTION 'illegal move of % % (%) in state %: % by % under version %',
                before.workflow_type, before.entity_id, NEW.workflow_id, before.state,
                NEW.from_state || ' → ' || NEW.to_state, NEW.trigger, NEW.definition_version
                USING ERRCODE = 'check_violation';
        ELSIF asked.authority IS NULL THEN
            RAISE EXCEPTION 'no request asks for % of % by %', NEW.trigger, NEW.workflow_id,
                COALESCE(NEW.triggered_by, '(nobody)')
                USING ERRCODE = 'insufficient_privilege', CONSTRAINT = 'authority',
                      HINT = 'Fire a trigger instead: interlock fire REF TRIGGER --by WHO';
        ELSIF asked.bound_version <> NEW.seq - 1 THEN
            RAISE EXCEPTION 'request % asks for % of % at version %, not at %', NEW.request_id, NEW.trigger, NEW.workflow_id,
                asked.bound_version, NEW.seq - 1
                USING ERRCODE = 'insufficient_privilege', CONSTRAINT = 'authority',
                      HINT = 'Fire a trigger instead: interlock fire REF TRIGGER --by WHO';
        -- Its definition may be another than the one it was accepted under.
        ELSIF asked.origin <> 'override' AND NOT asked.open_to && ARRAY[asked.authority::text, 'anyone'] THEN
            RAISE EXCEPTION '% of % % is open to %, not to %', NEW.trigger, before.workflow_type, before.entity_id,
                array_to_string(asked.open_to, ', '), asked.authority
                USING ERRCODE = 'insufficient_privilege', CONSTRAINT = 'authority';
        END IF;
        NEW.authority := asked.authority;
        NEW.proof := asked.proof;
        NEW.login := asked.login;
    END IF;
    NEW.workflow_type := before.workflow_type;
    NEW.created_at := GREATEST(now(), before.at);
    NEW.prev_hash := before.hash;
    NEW.hash := interlock.event_hash(NEW);
    RETURN NEW;
END $$;

-- At commit: the state is the one that the last event entered.
CREATE FUNCTION interlock.state_has_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.current_state, OLD.version, OLD.definition_version)
       IS DISTINCT FROM (NEW.current_state, NEW.version, NEW.definition_version)
       AND NOT EXISTS (
        SELECT FROM interlock.workflow_transitions
         WHERE workflow_id = NEW.id AND seq = NEW.version AND to_state = NEW.current_state
           AND definition_version = NEW.definition_version
    ) THEN
        RAISE EXCEPTION 'state of instance % changed to % (version %) without its history row',
            NEW.id, NEW.current_state, NEW.version
            USING ERRCODE = 'check_violation', HINT = 'Fire a trigger instead: interlock fire REF TRIGGER --by WHO';
    END IF;
    RETURN NULL;
END $$;

-- And an approval is decided by enough of those who may, and says by whom (APPROVAL-3, APPROVAL-6).
CREATE FUNCTION interlock.history_has_state() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wrong text;
BEGIN
    IF NEW.workflow_type = 'approval' AND NEW.from_state <> NEW.to_state THEN
        SELECT interlock.not_decided(i.id, NEW.definition_version, NEW.to_state, NEW.metadata, i.context) INTO wrong
          FROM interlock.workflow_instances i WHERE i.id = NEW.workflow_id;
        IF wrong IS NOT NULL THEN
            RAISE EXCEPTION '% of approval % does not decide it: %', NEW.trigger, NEW.workflow_id, wrong
                USING ERRCODE = 'insufficient_privilege', CONSTRAINT = 'authority',
                      HINT = 'interlock fire APPROVAL approve --by WHO';
        END IF;
    END IF;
    IF NOT EXISTS (SELECT FROM interlock.workflow_instances WHERE id = NEW.workflow_id AND version >= NEW.seq) THEN
        RAISE EXCEPTION 'history of instance % has event %, but its state did not move', NEW.workflow_id, NEW.seq
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER born BEFORE INSERT ON interlock.workflow_instances
    FOR EACH ROW EXECUTE FUNCTION interlock.born();

CREATE TRIGGER identity_fixed BEFORE UPDATE ON interlock.workflow_instances
    FOR EACH ROW EXECUTE FUNCTION interlock.identity_fixed();

CREATE CONSTRAINT TRIGGER state_has_history AFTER UPDATE OF current_state, version, definition_version
    ON interlock.workflow_instances DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION interlock.state_has_history();

CREATE TRIGGER append BEFORE INSERT ON interlock.workflow_transitions
    FOR EACH ROW EXECUTE FUNCTION interlock.append();

CREATE CONSTRAINT TRIGGER history_has_state AFTER INSERT ON interlock.workflow_transitions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION interlock.history_has_state();

CREATE TRIGGER as_recorded BEFORE INSERT ON interlock.definition_states
    FOR EACH ROW EXECUTE FUNCTION interlock.as_recorded();

CREATE TRIGGER as_recorded BEFORE INSERT ON interlock.definition_transitions
    FOR EACH ROW EXECUTE FUNCTION interlock.as_recorded();

CREATE FUNCTION interlock.refuse_uuid() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', format(TG_ARGV[0], NEW.entity_id, NEW.project) USING ERRCODE = 'check_violation', HINT = TG_ARGV[1];
END $$;

CREATE TRIGGER no_uuid BEFORE INSERT OR UPDATE OF entity_id ON interlock.workflow_instances FOR EACH ROW
    WHEN (interlock.is_uuid(NEW.entity_id))
    EXECUTE FUNCTION interlock.refuse_uuid('workflow_instances.entity_id cannot be a UUID: %1$s',
                                           'A UUID always means the instance with that UUID. Choose another name.');

CREATE TRIGGER one_spelling BEFORE INSERT OR UPDATE OF project ON interlock.workflow_instances FOR EACH ROW
    WHEN (interlock.is_uuid(NEW.project) AND NEW.project <> lower(NEW.project))
    EXECUTE FUNCTION interlock.refuse_uuid('workflow_instances.project %2$s is a UUID in upper case',
                                           'Write it in lower case: one project has one name.');

-- What a task or a gate is to do stands in `commands`, so its context must not seem to say it. Of the older lineage (0.x) nothing
-- is carried out.
CREATE FUNCTION interlock.no_command() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.workflow_type IN ('task', 'test_gate') AND NEW.definition_version NOT LIKE '0.%'
       AND NEW.context ?| ARRAY['command', 'shell', 'env', 'env_from', 'cwd', 'limits', 'sandbox', 'reads', 'network',
                                'patch_id', 'message'] THEN
        RAISE EXCEPTION 'the context of a % cannot contain what to run: that comes with a plan', NEW.workflow_type
            USING ERRCODE = 'check_violation', HINT = 'interlock run PLAN';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER no_command BEFORE INSERT ON interlock.workflow_instances FOR EACH ROW EXECUTE FUNCTION interlock.no_command();

-- What somebody knew at birth, and whom they belong to, is what their work goes by ever after; the birth's hash has its digest.
CREATE TRIGGER context_fixed BEFORE UPDATE OF context ON interlock.workflow_instances FOR EACH ROW
    WHEN (OLD.context IS DISTINCT FROM NEW.context)
    EXECUTE FUNCTION interlock.fixed('the context');
