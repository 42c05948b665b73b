-- The durable core. Whatever this file refuses is refused to everyone, raw SQL included. The protecting triggers are
-- ENABLE ALWAYS: ordinary ones are skipped under session_replication_role = replica.

-- Definitions, as recorded ----------------------------------------------------------------------------------------

CREATE TABLE workflow_definitions (
    type          varchar(50)  NOT NULL,
    version       varchar(20)  NOT NULL,
    checksum      char(64)     NOT NULL,
    body          jsonb        NOT NULL,
    initial_state varchar(100) NOT NULL,
    recorded_at   timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (type, version)
);

CREATE TABLE definition_states (
    type     varchar(50)  NOT NULL,
    version  varchar(20)  NOT NULL,
    state    varchar(100) NOT NULL,
    terminal boolean      NOT NULL,
    PRIMARY KEY (type, version, state),
    FOREIGN KEY (type, version) REFERENCES workflow_definitions (type, version)
);

CREATE TABLE definition_transitions (
    type    varchar(50)  NOT NULL,
    version varchar(20)  NOT NULL,
    source  varchar(100) NOT NULL,
    trigger varchar(100) NOT NULL,
    dest    varchar(100) NOT NULL,
    PRIMARY KEY (type, version, source, trigger, dest),
    FOREIGN KEY (type, version, source) REFERENCES definition_states (type, version, state),
    FOREIGN KEY (type, version, dest) REFERENCES definition_states (type, version, state)
);

-- Instances -------------------------------------------------------------------------------------------------------

CREATE TABLE workflow_instances (
    id                 uuid         PRIMARY KEY,
    workflow_type      varchar(50)  NOT NULL,
    definition_version varchar(20)  NOT NULL,
    current_state      varchar(100) NOT NULL,
    version            integer      NOT NULL DEFAULT 0 CHECK (version >= 0),
    entity_id          varchar(100) NOT NULL CHECK (entity_id <> ''),
    project_id         uuid         NOT NULL,
    context            jsonb        NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(context) = 'object'),
    error              text,
    retry_count        integer      NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
    created_by         varchar(100) NOT NULL,
    created_at         timestamptz  NOT NULL DEFAULT now(),
    updated_at         timestamptz  NOT NULL DEFAULT now(),
    UNIQUE (project_id, workflow_type, entity_id),
    FOREIGN KEY (workflow_type, definition_version, current_state)
        REFERENCES definition_states (type, version, state)
) WITH (fillfactor = 75);  -- room for heap-only updates: no index holds a column that moves

CREATE INDEX workflow_instances_entity ON workflow_instances (entity_id);

CREATE TABLE workflow_links (
    source_id  uuid         NOT NULL REFERENCES workflow_instances (id),
    role       varchar(100) NOT NULL,
    inverse    varchar(100) NOT NULL,
    target_id  uuid         NOT NULL REFERENCES workflow_instances (id),
    created_at timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (source_id, role, target_id)
);

CREATE INDEX workflow_links_target ON workflow_links (target_id);

-- History: append-only, gap-free, hash-chained ----------------------------------------------------------------------

CREATE TABLE workflow_transitions (
    id                 uuid         PRIMARY KEY,
    workflow_id        uuid         NOT NULL REFERENCES workflow_instances (id),
    seq                integer      NOT NULL,
    workflow_type      varchar(50)  NOT NULL,
    definition_version varchar(20)  NOT NULL,
    from_state         varchar(100) NOT NULL,
    to_state           varchar(100) NOT NULL,
    trigger            varchar(100) NOT NULL,
    triggered_by       varchar(100),
    request_id         varchar(200),
    severity           varchar(10)  NOT NULL DEFAULT 'info'
                       CHECK (severity IN ('info', 'warning', 'error', 'critical')),
    metadata           jsonb        NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    created_at         timestamptz  NOT NULL DEFAULT now(),
    prev_hash          bytea        NOT NULL,
    hash               bytea        NOT NULL,
    -- Commit order for the relay: a reader below the oldest running transaction sees no row appear behind it.
    xid                xid8         NOT NULL DEFAULT pg_current_xact_id(),
    position           bigint       GENERATED ALWAYS AS IDENTITY CHECK (position > 0),
    UNIQUE (workflow_id, seq)
);

CREATE UNIQUE INDEX workflow_transitions_commit_order ON workflow_transitions (xid, position);

-- Requests: inbox, retry, timer, follow-up and idempotency record in one ---------------------------------------------

CREATE TABLE trigger_requests (
    seq           bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_id    varchar(200) NOT NULL UNIQUE,
    fingerprint   bytea        NOT NULL,
    workflow_id   uuid         NOT NULL REFERENCES workflow_instances (id),
    lane          smallint     NOT NULL GENERATED ALWAYS AS (get_byte(uuid_send(workflow_id), 15) % 16) STORED,
    trigger       varchar(100) NOT NULL,
    triggered_by  varchar(100) NOT NULL,
    metadata      jsonb        NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(metadata) = 'object'),
    origin        varchar(10)  NOT NULL DEFAULT 'agent' CHECK (origin IN ('agent', 'timer', 'follow_up', 'override')),
    bound_version integer,
    status        varchar(10)  NOT NULL DEFAULT 'pending' CHECK (status IN
                  ('scheduled', 'pending', 'waiting', 'applied', 'rejected', 'superseded', 'dead')),
    not_before    timestamptz  NOT NULL DEFAULT now(),
    attempts      integer      NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    held_by       uuid         REFERENCES workflow_instances (id),
    granted       boolean      NOT NULL DEFAULT false,
    error         text,
    result        jsonb,
    accepted_at   timestamptz  NOT NULL DEFAULT now(),
    finished_at   timestamptz,
    trace         varchar(55),  -- the W3C traceparent of what caused it; NULL where nobody traces
    CHECK ((finished_at IS NOT NULL) = (status IN ('applied', 'rejected', 'superseded', 'dead')))
) WITH (fillfactor = 80);

-- What is due now, oldest first; what will be due; what stands in the way of those behind it; what is held.
CREATE INDEX trigger_requests_pending ON trigger_requests (lane, seq) WHERE status = 'pending';
CREATE INDEX trigger_requests_scheduled ON trigger_requests (not_before) WHERE status = 'scheduled';
CREATE INDEX trigger_requests_retrying ON trigger_requests (workflow_id, seq)
    WHERE status = 'scheduled' AND attempts > 0;
CREATE INDEX trigger_requests_waiting ON trigger_requests (workflow_id) WHERE status = 'waiting';
CREATE INDEX trigger_requests_held_by ON trigger_requests (held_by) WHERE held_by IS NOT NULL;
CREATE INDEX trigger_requests_finished ON trigger_requests (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX trigger_requests_dead ON trigger_requests (seq) WHERE status = 'dead';

-- Effects: what is done to the world, under a lease with a fencing token ---------------------------------------------

CREATE TABLE effects (
    id             uuid         PRIMARY KEY,
    workflow_id    uuid         NOT NULL REFERENCES workflow_instances (id),
    version        integer      NOT NULL,
    name           varchar(100) NOT NULL,
    payload        jsonb        NOT NULL DEFAULT '{}',
    done_trigger   varchar(100),
    failed_trigger varchar(100),
    status         varchar(10)  NOT NULL DEFAULT 'pending'
                   CHECK (status IN ('pending', 'leased', 'done', 'dead')),
    token          bigint       NOT NULL DEFAULT 0,
    leased_by      varchar(200),
    lease_until    timestamptz,
    attempts       integer      NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    not_before     timestamptz  NOT NULL DEFAULT now(),
    exclusive      text,
    error          text,
    result         jsonb,
    created_at     timestamptz  NOT NULL DEFAULT now(),
    finished_at    timestamptz,
    trace          varchar(55),
    CHECK ((status = 'leased') = (lease_until IS NOT NULL)),
    CHECK ((finished_at IS NOT NULL) = (status IN ('done', 'dead')))
);

CREATE INDEX effects_pending ON effects (not_before) WHERE status = 'pending';
CREATE INDEX effects_leased ON effects (lease_until) WHERE status = 'leased';
-- Of effects with the same key, such as those that work in one worktree, never two are leased at once.
CREATE UNIQUE INDEX effects_exclusive ON effects (exclusive) WHERE status = 'leased';
CREATE INDEX effects_queued ON effects (exclusive, not_before) WHERE status = 'pending' AND exclusive IS NOT NULL;
CREATE INDEX effects_workflow ON effects (workflow_id);
CREATE INDEX effects_finished ON effects (finished_at) WHERE finished_at IS NOT NULL;

-- Bookkeeping of the sweeps and of the relay ---------------------------------------------------------------------------

CREATE TABLE sweeps (
    name        varchar(50) PRIMARY KEY,
    slot        bigint      NOT NULL,
    started_at  timestamptz NOT NULL,
    finished_at timestamptz,
    found       integer
);

CREATE TABLE relay_cursors (
    name     varchar(50) PRIMARY KEY,
    xid      xid8        NOT NULL,
    position bigint      NOT NULL
);

-- The hash chain --------------------------------------------------------------------------------------------------------
-- Each field is prefixed with its length in bytes, so that no two different rows read the same; NULL has length -1.

CREATE FUNCTION interlock_field(value text) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE(
        int4send(octet_length(convert_to(value, 'UTF8'))) || convert_to(value, 'UTF8'),
        int4send(-1)
    );

CREATE FUNCTION interlock_micros(instant timestamptz) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((extract(epoch FROM instant) * 1000000)::bigint)::text;

CREATE FUNCTION interlock_birth_hash(i workflow_instances) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN sha256(
        interlock_field(i.id::text) || interlock_field(i.workflow_type) || interlock_field(i.entity_id)
        || interlock_field(i.project_id::text) || interlock_field(i.created_by)
        || interlock_field(interlock_micros(i.created_at))
    );

CREATE FUNCTION interlock_event_hash(t workflow_transitions) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN sha256(
        t.prev_hash
        || interlock_field(t.id::text) || interlock_field(t.workflow_id::text) || interlock_field(t.seq::text)
        || interlock_field(t.definition_version)
        || interlock_field(t.from_state) || interlock_field(t.to_state) || interlock_field(t.trigger)
        || interlock_field(t.triggered_by) || interlock_field(t.request_id) || interlock_field(t.severity)
        || interlock_field(t.metadata::text) || interlock_field(interlock_micros(t.created_at))
    );

-- Taking work ---------------------------------------------------------------------------------------------------------
-- What is due in a lane, oldest first, each with the instance it is meant for. One call, one round trip, two statements:
-- the lane's lock is taken before the second one's snapshot, so that is newer than the lane's last commit, and nobody
-- else decides for these instances before we commit.
-- NO KEY: accepting a trigger, or following up, on an instance (a foreign key to it) does not wait for this round.
-- A request in retry stands in the way of those behind it on the same instance, but not of an operator's.

CREATE FUNCTION interlock_gather(namespace integer, wanted_lane integer, most integer, one_only uuid)
    RETURNS TABLE (
        seq bigint, request_id varchar, trigger varchar, triggered_by varchar, metadata jsonb, origin varchar,
        bound_version integer, attempts integer, granted boolean,
        workflow_id uuid, workflow_type varchar, definition_version varchar, current_state varchar, version integer,
        context jsonb, project_id uuid, entity_id varchar, trace varchar
    ) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM pg_advisory_xact_lock(namespace, wanted_lane);
    RETURN QUERY
    SELECT r.seq, r.request_id, r.trigger, r.triggered_by, r.metadata, r.origin, r.bound_version, r.attempts, r.granted,
           i.id, i.workflow_type, i.definition_version, i.current_state, i.version, i.context, i.project_id, i.entity_id,
           r.trace
      FROM (SELECT *
              FROM trigger_requests p
             WHERE p.status = 'pending' AND p.lane = wanted_lane
               AND (one_only IS NULL OR p.workflow_id = one_only)
               AND NOT EXISTS (SELECT FROM trigger_requests b
                                WHERE b.workflow_id = p.workflow_id AND b.status = 'scheduled' AND b.attempts > 0
                                  AND b.seq < p.seq AND p.origin <> 'override')
             ORDER BY p.seq
             LIMIT most) r
      JOIN workflow_instances i ON i.id = r.workflow_id
     ORDER BY r.seq
       FOR NO KEY UPDATE OF i;
END $$;

-- Refusals -----------------------------------------------------------------------------------------------------------------

CREATE FUNCTION interlock_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation', HINT = 'History and definitions are kept for ever as they were written.';
END $$;

-- From now on a table's rows are kept: what is `refused` of them is refused to everyone, and TRUNCATE too.
CREATE FUNCTION interlock_protect(protected regclass, refused text DEFAULT 'UPDATE OR DELETE')
    RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER kept BEFORE %s ON %s FOR EACH ROW EXECUTE FUNCTION interlock_refuse()',
                   refused, protected);
    EXECUTE format('CREATE TRIGGER kept_whole BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION interlock_refuse()',
                   protected);
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER kept, ENABLE ALWAYS TRIGGER kept_whole', protected);
END $$;

-- A recorded definition is whole at once: no state and no move can be slipped in beside what its body says.
CREATE FUNCTION interlock_as_recorded() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    recorded jsonb;
    added    jsonb := to_jsonb(NEW);
BEGIN
    SELECT body INTO recorded FROM workflow_definitions WHERE type = NEW.type AND version = NEW.version;
    IF NOT COALESCE(
        CASE TG_TABLE_NAME
            WHEN 'definition_states' THEN
                recorded->'states'->(added->>'state') = jsonb_build_object('terminal', added->'terminal')
            ELSE recorded->'transitions' @> jsonb_build_array(added - 'type' - 'version')
        END, false) THEN
        RAISE EXCEPTION 'definition % % is recorded without %', NEW.type, NEW.version, added - 'type' - 'version'
            USING ERRCODE = 'restrict_violation', HINT = 'Give the changed definition a new version.';
    END IF;
    -- What has ended does not change, but by a move that is declared an exception (SSOT 8.2).
    IF TG_TABLE_NAME = 'definition_transitions' AND (recorded->'states'->(added->>'source')->>'terminal')::boolean
       AND NOT COALESCE(recorded->'rules' @> jsonb_build_array(
               jsonb_build_object('trigger', added->'trigger', 'exceptional', true)), false) THEN
        RAISE EXCEPTION '% % leaves the terminal state % by %',
            NEW.type, NEW.version, added->>'source', added->>'trigger' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION interlock_born() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    initial text;
BEGIN
    SELECT initial_state INTO initial FROM workflow_definitions
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
    RETURN NEW;
END $$;

CREATE FUNCTION interlock_identity_fixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.id, OLD.workflow_type, OLD.definition_version, OLD.entity_id, OLD.project_id, OLD.created_by, OLD.created_at)
       IS NOT DISTINCT FROM
       (NEW.id, NEW.workflow_type, NEW.definition_version, NEW.entity_id, NEW.project_id, NEW.created_by, NEW.created_at)
       AND NEW.version >= OLD.version THEN
        RETURN NEW;
    END IF;
    -- Another version of its definition only together with the event that moves it there.
    IF OLD.definition_version <> NEW.definition_version AND NEW.version = OLD.version + 1
       AND (OLD.id, OLD.workflow_type, OLD.entity_id, OLD.project_id, OLD.created_by, OLD.created_at)
           = (NEW.id, NEW.workflow_type, NEW.entity_id, NEW.project_id, NEW.created_by, NEW.created_at)
       AND EXISTS (SELECT FROM workflow_transitions
                    WHERE workflow_id = NEW.id AND seq = NEW.version AND trigger = 'definition.migrate'
                      AND definition_version = NEW.definition_version) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'identity, definition and past of instance % cannot change', OLD.id
        USING ERRCODE = 'restrict_violation';
END $$;

-- Before a history row is kept: it continues its instance's history without a gap, the definition has the move, and
-- the chain goes on. Order, time and hashes are the database's own, whatever the statement says. Time never goes back
-- within an instance: a transaction that began earlier may come later, and a clock may be set back.
CREATE FUNCTION interlock_append() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    instance workflow_instances;
    before   record;
BEGIN
    SELECT * INTO instance FROM workflow_instances WHERE id = NEW.workflow_id;
    IF NEW.seq = 1 THEN
        SELECT d.initial_state AS state, d.version AS version, interlock_birth_hash(instance) AS hash,
               instance.created_at AS at INTO before
          FROM workflow_definitions d
         WHERE d.type = instance.workflow_type AND d.version = instance.definition_version;
    ELSE
        SELECT to_state AS state, definition_version AS version, hash, created_at AS at INTO before
          FROM workflow_transitions
         WHERE workflow_id = NEW.workflow_id AND seq = NEW.seq - 1;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'history of instance % has no event before %', NEW.workflow_id, NEW.seq
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.trigger = 'definition.migrate' THEN
        PERFORM interlock_check_migration(NEW, instance, before.state, before.version);
    ELSIF before.state <> NEW.from_state OR before.version <> NEW.definition_version
       OR NOT EXISTS (
           SELECT FROM definition_transitions
            WHERE type = instance.workflow_type AND version = NEW.definition_version
              AND source = NEW.from_state AND trigger = NEW.trigger AND dest = NEW.to_state
       ) THEN
        RAISE EXCEPTION 'illegal move of % % (%) standing in %: % by % under version %',
            instance.workflow_type, instance.entity_id, NEW.workflow_id, before.state,
            NEW.from_state || ' → ' || NEW.to_state, NEW.trigger, NEW.definition_version
            USING ERRCODE = 'check_violation';
    END IF;
    NEW.workflow_type := instance.workflow_type;
    NEW.created_at := GREATEST(now(), before.at);
    NEW.xid := pg_current_xact_id();
    NEW.prev_hash := before.hash;
    NEW.hash := interlock_event_hash(NEW);
    RETURN NEW;
END $$;

-- At commit: state and history tell the same.
CREATE FUNCTION interlock_state_has_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.current_state, OLD.version, OLD.definition_version)
       IS DISTINCT FROM (NEW.current_state, NEW.version, NEW.definition_version)
       AND NOT EXISTS (
        SELECT FROM workflow_transitions
         WHERE workflow_id = NEW.id AND seq = NEW.version AND to_state = NEW.current_state
           AND definition_version = NEW.definition_version
    ) THEN
        RAISE EXCEPTION 'state of instance % changed to % (version %) without its history row',
            NEW.id, NEW.current_state, NEW.version
            USING ERRCODE = 'check_violation', HINT = 'Fire a trigger instead: interlock fire REF TRIGGER --by WHO';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_history_has_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM workflow_instances WHERE id = NEW.workflow_id AND version >= NEW.seq) THEN
        RAISE EXCEPTION 'history of instance % has event %, but its state did not move', NEW.workflow_id, NEW.seq
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER born BEFORE INSERT ON workflow_instances
    FOR EACH ROW EXECUTE FUNCTION interlock_born();
CREATE TRIGGER identity_fixed BEFORE UPDATE ON workflow_instances
    FOR EACH ROW EXECUTE FUNCTION interlock_identity_fixed();
CREATE CONSTRAINT TRIGGER state_has_history AFTER UPDATE ON workflow_instances
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION interlock_state_has_history();

CREATE TRIGGER append BEFORE INSERT ON workflow_transitions
    FOR EACH ROW EXECUTE FUNCTION interlock_append();
CREATE CONSTRAINT TRIGGER history_has_state AFTER INSERT ON workflow_transitions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION interlock_history_has_state();

SELECT interlock_protect('workflow_instances', 'DELETE');
SELECT interlock_protect(kept) FROM unnest(ARRAY['workflow_transitions', 'workflow_definitions', 'definition_states',
                                                 'definition_transitions']::regclass[]) AS kept;

CREATE TRIGGER as_recorded BEFORE INSERT ON definition_states
    FOR EACH ROW EXECUTE FUNCTION interlock_as_recorded();
CREATE TRIGGER as_recorded BEFORE INSERT ON definition_transitions
    FOR EACH ROW EXECUTE FUNCTION interlock_as_recorded();
ALTER TABLE definition_states ENABLE ALWAYS TRIGGER as_recorded;
ALTER TABLE definition_transitions ENABLE ALWAYS TRIGGER as_recorded;

ALTER TABLE workflow_instances ENABLE ALWAYS TRIGGER born, ENABLE ALWAYS TRIGGER identity_fixed,
    ENABLE ALWAYS TRIGGER state_has_history;
ALTER TABLE workflow_transitions ENABLE ALWAYS TRIGGER append, ENABLE ALWAYS TRIGGER history_has_state;
