-- The durable core: definitions, instances, history, requests, effects.

-- Definitions, as recorded ----------------------------------------------------------------------------------------

CREATE TABLE interlock.workflow_definitions (
    type          varchar(50)  NOT NULL,
    version       varchar(20)  NOT NULL,
    checksum      char(64)     NOT NULL,
    body          jsonb        NOT NULL,
    initial_state varchar(100) NOT NULL,
    recorded_at   timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (type, version)
);

CREATE TABLE interlock.definition_states (
    type     varchar(50)  NOT NULL,
    version  varchar(20)  NOT NULL,
    state    varchar(100) NOT NULL,
    terminal boolean      NOT NULL,
    PRIMARY KEY (type, version, state),
    FOREIGN KEY (type, version) REFERENCES interlock.workflow_definitions (type, version)
);

CREATE TABLE interlock.definition_transitions (
    type    varchar(50)  NOT NULL,
    version varchar(20)  NOT NULL,
    source  varchar(100) NOT NULL,
    trigger varchar(100) NOT NULL,
    dest    varchar(100) NOT NULL,
    "by"    text[]       NOT NULL CHECK ("by" <@ ARRAY['anyone', 'holder', 'effect', 'machinery', 'decider', 'operator']
                                         AND cardinality("by") > 0),  -- who may make it
    event   varchar(100),  -- what its events are called (EVENT-17)
    PRIMARY KEY (type, version, source, trigger, dest),
    FOREIGN KEY (type, version, source) REFERENCES interlock.definition_states (type, version, state),
    FOREIGN KEY (type, version, dest) REFERENCES interlock.definition_states (type, version, state)
);
CREATE INDEX definition_transitions_trigger ON interlock.definition_transitions (type, version, trigger);

-- Instances -------------------------------------------------------------------------------------------------------

CREATE TABLE interlock.workflow_instances (
    id                 uuid         PRIMARY KEY,
    workflow_type      varchar(50)  NOT NULL,
    definition_version varchar(20)  NOT NULL,
    current_state      varchar(100) NOT NULL,
    version            integer      NOT NULL DEFAULT 0 CHECK (version >= 0),
    entity_id          varchar(100) NOT NULL CHECK (entity_id <> ''),
    project            varchar(100) NOT NULL,
    context            jsonb        NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(context) = 'object'),
    error              text,
    retry_count        integer      NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
    created_by         varchar(100) NOT NULL,
    created_at         timestamptz  NOT NULL DEFAULT now(),
    updated_at         timestamptz  NOT NULL DEFAULT now(),
    -- What it was born with, as its birth's hash has it: its version then, the digests of its context and of what is carried
    -- out for it, by table ({"commands": …}), and the token with which it was asked for (`token:ID`; NULL: none).
    born_version       varchar(20)  NOT NULL,
    context_sha256     bytea        NOT NULL,
    bodies             jsonb,
    born_proof         varchar(200),
    -- No foreign key to `definition_states`: a move leads to a state of its definition (`append`), and `born` and `state_has_history` hold
    -- every state to that. Each process would lock the same few rows of states for each move.
    UNIQUE (project, workflow_type, entity_id)
) WITH (fillfactor = 75);  -- room for heap-only updates: no index holds a column that moves
CREATE INDEX workflow_instances_entity ON interlock.workflow_instances (entity_id, project);

CREATE TABLE interlock.workflow_links (
    source_id  uuid         NOT NULL REFERENCES interlock.workflow_instances (id),
    role       varchar(100) NOT NULL,
    inverse    varchar(100) NOT NULL,
    target_id  uuid         NOT NULL REFERENCES interlock.workflow_instances (id),
    created_at timestamptz  NOT NULL DEFAULT now(),
    PRIMARY KEY (source_id, role, target_id)
);
CREATE INDEX workflow_links_target ON interlock.workflow_links (target_id);

-- History: append-only, gap-free, hash-chained ----------------------------------------------------------------------

CREATE TABLE interlock.workflow_transitions (
    id                 uuid         PRIMARY KEY,
    -- No foreign key: `append` and `history_has_state` ask for the instance anyway, and `archived_whole` keeps it from leaving alone.
    workflow_id        uuid         NOT NULL,
    seq                integer      NOT NULL,
    workflow_type      varchar(50)  NOT NULL,
    definition_version varchar(20)  NOT NULL,
    from_state         varchar(100) NOT NULL,
    to_state           varchar(100) NOT NULL,
    trigger            varchar(100) NOT NULL,
    triggered_by       varchar(100),
    request_id         varchar(200),
    -- By which right it was fired, what proved it, and who was logged in: as the request that asked for it says.
    authority          varchar(10)  NOT NULL,
    proof              varchar(200),
    login              varchar(63)  NOT NULL,
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
CREATE UNIQUE INDEX workflow_transitions_commit_order ON interlock.workflow_transitions (xid, position);

-- The last event of an instance; NULL: it has not moved.
CREATE FUNCTION interlock.last_event(instance uuid) RETURNS interlock.workflow_transitions LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT t FROM interlock.workflow_transitions t WHERE t.workflow_id = instance ORDER BY t.seq DESC LIMIT 1);
END $$;

-- Requests: inbox, retry, timer, follow-up and idempotency record in one ---------------------------------------------

CREATE TABLE interlock.trigger_requests (
    seq           bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_id    varchar(200) NOT NULL UNIQUE,
    fingerprint   bytea        NOT NULL,
    workflow_id   uuid         NOT NULL REFERENCES interlock.workflow_instances (id),
    partition     smallint     NOT NULL GENERATED ALWAYS AS (get_byte(uuid_send(workflow_id), 15) % 16) STORED,
    trigger       varchar(100) NOT NULL,
    triggered_by  varchar(100) NOT NULL,
    metadata      jsonb        NOT NULL DEFAULT '{}',
    origin        varchar(10)  NOT NULL DEFAULT 'agent',
    bound_version integer,
    -- By which right it is fired, what proves that, and who was logged in when it was accepted (`authority.sql`).
    authority     varchar(10)  NOT NULL DEFAULT 'anyone',
    proof         varchar(200),
    login         varchar(63)  NOT NULL DEFAULT session_user,
    status        varchar(10)  NOT NULL DEFAULT 'pending',
    not_before    timestamptz  NOT NULL DEFAULT now(),
    attempts      integer      NOT NULL DEFAULT 0,
    held_by       uuid         REFERENCES interlock.workflow_instances (id),
    granted       boolean      NOT NULL DEFAULT false,
    error         text,
    result        jsonb,
    accepted_at   timestamptz  NOT NULL DEFAULT now(),
    finished_at   timestamptz,
    trace         varchar(55)  -- the W3C traceparent of what caused it; NULL where nobody traces
) WITH (fillfactor = 80);

-- What CHECKs would say of a request. PostgreSQL prepares CHECKs anew for each statement, and a function once: accepting a
-- trigger takes it a third less of the time.
CREATE FUNCTION interlock.request_is_sound() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken CONSTANT text := CASE
        WHEN NEW.origin NOT IN ('agent', 'timer', 'follow_up', 'override') THEN 'origin'
        WHEN NEW.authority NOT IN ('anyone', 'holder', 'effect', 'machinery', 'decider', 'operator') THEN 'authority'
        WHEN NEW.status NOT IN ('scheduled', 'pending', 'waiting', 'applied', 'rejected', 'superseded', 'dead') THEN 'status'
        WHEN (NEW.finished_at IS NOT NULL) <> (NEW.status IN ('applied', 'rejected', 'superseded', 'dead')) THEN 'finished_at'
        WHEN NEW.attempts < 0 THEN 'attempts'
        WHEN NEW.not_before >= '9999-01-01 00:00:00+00' THEN 'not_before'  -- what reads it knows no later year
        WHEN NEW.trace !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' THEN 'trace'
        WHEN jsonb_typeof(NEW.metadata) <> 'object' THEN 'metadata'
        -- An agent cannot speak as an operator: only overrides carry one, and each does.
        WHEN (NEW.origin = 'override') <> (NEW.metadata ?| ARRAY['operator', 'override']) THEN 'origin'
        WHEN OLD.held_by <> NEW.held_by AND NOT interlock.was_brake(OLD.held_by) OR OLD.held_by IS NOT NULL AND NEW.held_by IS NULL THEN 'held_by'  -- once and for all
        WHEN OLD.status = 'waiting' AND NEW.status IN ('pending', 'scheduled') AND interlock.is_braked(OLD.held_by) THEN 'status'
        WHEN NEW.metadata ? 'spent' AND NOT interlock.is_spent(NEW.metadata->'spent') THEN 'metadata'
        -- Interlock writes these itself, into the events of approvals, grants, what they release, and moves that change a link.
        WHEN NEW.metadata ?| ARRAY['approval', 'relinked', 'terms', 'votes'] THEN 'metadata'
        WHEN NEW.origin = 'override' AND jsonb_typeof(NEW.metadata->'override') IS DISTINCT FROM 'object' THEN 'metadata'
        -- Interlock's own ids are known beforehand: whoever could take one would keep Interlock from firing that trigger.
        WHEN NEW.proof IS NULL AND NEW.request_id LIKE 'interlock:%' THEN 'request_id' END;
BEGIN
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION '% of request % cannot be %', broken, NEW.request_id, to_jsonb(NEW)->>broken
            USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME, COLUMN = broken;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER sound BEFORE INSERT OR UPDATE ON interlock.trigger_requests FOR EACH ROW
    EXECUTE FUNCTION interlock.request_is_sound();

-- What is due now, oldest first; what will be due; what stands in the way of those behind it; what is held.
CREATE INDEX trigger_requests_pending ON interlock.trigger_requests (partition, seq) WHERE status = 'pending';
CREATE INDEX trigger_requests_scheduled ON interlock.trigger_requests (not_before) WHERE status = 'scheduled';
CREATE INDEX trigger_requests_retrying ON interlock.trigger_requests (workflow_id, seq)
    WHERE status = 'scheduled' AND attempts > 0;
CREATE INDEX trigger_requests_waiting ON interlock.trigger_requests (workflow_id) WHERE status = 'waiting';
CREATE INDEX trigger_requests_held_by ON interlock.trigger_requests (held_by) WHERE held_by IS NOT NULL;
CREATE INDEX trigger_requests_finished ON interlock.trigger_requests (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX trigger_requests_dead ON interlock.trigger_requests (seq) WHERE status = 'dead';

-- For `show`, `stuck` and the archive, which read one instance's requests.
CREATE INDEX trigger_requests_instance ON interlock.trigger_requests (workflow_id);

-- Effects: what is done to the world, under a lease with a fencing token ---------------------------------------------

CREATE TABLE interlock.effects (
    id             uuid         PRIMARY KEY,
    workflow_id    uuid         NOT NULL REFERENCES interlock.workflow_instances (id),
    version        integer      NOT NULL,
    name           varchar(100) NOT NULL,
    queue          varchar(50)  NOT NULL DEFAULT 'effects',  -- whose nodes run it
    payload        jsonb        NOT NULL DEFAULT '{}',
    done_trigger   varchar(100),
    failed_trigger varchar(100),
    status         varchar(10)  NOT NULL DEFAULT 'pending'
                   CHECK (status IN ('pending', 'leased', 'done', 'dead', 'cancelled')),
    token          bigint       NOT NULL DEFAULT 0,
    leased_by      varchar(200),
    lease_until    timestamptz,
    attempts       integer      NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    not_before     timestamptz  NOT NULL DEFAULT now(),
    exclusive      text,
    limit_key      varchar(100),  -- the limits of this key count it, too
    error          text,
    progress       jsonb,  -- what its function last said of it
    result         jsonb,
    created_at     timestamptz  NOT NULL DEFAULT now(),
    finished_at    timestamptz,
    trace          varchar(55),
    CHECK ((status = 'leased') = (lease_until IS NOT NULL)),
    CHECK ((finished_at IS NOT NULL) = (status IN ('done', 'dead', 'cancelled')))
);
CREATE INDEX effects_pending ON interlock.effects (not_before) WHERE status = 'pending';
CREATE INDEX effects_leased ON interlock.effects (lease_until) WHERE status = 'leased';

-- Of effects with the same key, such as those that work in one worktree, never two are leased at once.
CREATE UNIQUE INDEX effects_exclusive ON interlock.effects (exclusive) WHERE status = 'leased';
CREATE INDEX effects_queued ON interlock.effects (exclusive, not_before) WHERE status = 'pending' AND exclusive IS NOT NULL;
CREATE INDEX effects_workflow ON interlock.effects (workflow_id);
CREATE INDEX effects_finished ON interlock.effects (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX effects_dead ON interlock.effects (workflow_id) WHERE status = 'dead';

-- Whether the outcome of an effect still matters (EFFECT-10): its failure was not told, or its instance has not moved on by that.
CREATE FUNCTION interlock.awaited(e interlock.effects) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN e.failed_trigger IS NULL OR (SELECT i.version <= e.version FROM interlock.workflow_instances i WHERE i.id = e.workflow_id);
END $$;

-- What has not ended is not deleted: a trigger that was accepted is not lost, whoever writes SQL.
CREATE FUNCTION interlock.not_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % has not ended, and cannot be deleted', COALESCE(to_jsonb(OLD)->>'request_id', to_jsonb(OLD)->>'id'),
        TG_TABLE_NAME USING ERRCODE = 'restrict_violation', HINT = 'interlock quarantine request ID --reason WHY';
END $$;

CREATE TRIGGER not_lost BEFORE DELETE ON interlock.trigger_requests FOR EACH ROW WHEN (OLD.finished_at IS NULL)
    EXECUTE FUNCTION interlock.not_ended();

CREATE TRIGGER not_lost BEFORE DELETE ON interlock.effects FOR EACH ROW WHEN (OLD.finished_at IS NULL)
    EXECUTE FUNCTION interlock.not_ended();

-- Partitions that stand: what is due in them, and is not applied. The sweep `partitions` writes down which request is at their head, and
-- before each round it makes of such a partition, that it begins: so a round that ends its process is known of by the next.
CREATE TABLE interlock.partition_watch (
    partition smallint    PRIMARY KEY,
    head      bigint      NOT NULL,                -- the oldest request that could be applied
    since     timestamptz NOT NULL DEFAULT now(),  -- it is that one
    begun     integer     NOT NULL DEFAULT 0,      -- rounds that were begun and not ended; from 2 on, requests are applied alone
    suspect   bigint,                              -- the request that is being applied alone
    strikes   integer     NOT NULL DEFAULT 0       -- how often it was begun
);

-- Bookkeeping of the sweeps and of the relay ---------------------------------------------------------------------------

CREATE TABLE interlock.sweeps (
    name        varchar(50) PRIMARY KEY,
    period_at   timestamptz NOT NULL,  -- when the period began in which it last ran
    started_at  timestamptz NOT NULL,
    finished_at timestamptz,
    found       integer
);

CREATE TABLE interlock.relay_cursors (
    name     varchar(50) PRIMARY KEY,
    xid      xid8        NOT NULL,
    position bigint      NOT NULL
);

-- The hash chain --------------------------------------------------------------------------------------------------------
-- Each field is prefixed with its length in bytes, so that no two different rows read the same; NULL has length -1. So PostgreSQL
-- sends an array's elements, after 20 bytes about the array. These functions are PL/pgSQL because that is prepared once a session.

CREATE FUNCTION interlock.chained(before bytea, VARIADIC fields bytea[]) RETURNS bytea
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN sha256(before || substr(array_send(fields), 21));
END $$;

CREATE FUNCTION interlock.micros(instant timestamptz) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN (extract(epoch FROM instant) * 1000000)::bigint;
END $$;

-- Of JSON as PostgreSQL prints its jsonb, as events hash their metadata.
CREATE FUNCTION interlock.digest(value jsonb) RETURNS bytea LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN sha256(convert_to(value::text, 'UTF8'));
END $$;

CREATE FUNCTION interlock.birth_hash(
    id uuid, type text, version text, entity_id text, project text, by text, at timestamptz, context_sha256 bytea, bodies jsonb,
    proof text)
    RETURNS bytea LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN interlock.chained(
        '', convert_to(id::text, 'UTF8'), convert_to(type, 'UTF8'), convert_to(version, 'UTF8'), convert_to(entity_id, 'UTF8'),
        convert_to(project, 'UTF8'), convert_to(by, 'UTF8'), convert_to(interlock.micros(at), 'UTF8'),
        convert_to(encode(context_sha256, 'hex'), 'UTF8'), convert_to(bodies::text, 'UTF8'), convert_to(proof, 'UTF8'));
END $$;

CREATE FUNCTION interlock.birth_hash(i interlock.workflow_instances) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN interlock.birth_hash(i.id, i.workflow_type, i.born_version, i.entity_id, i.project, i.created_by, i.created_at,
                                i.context_sha256, i.bodies, i.born_proof);

CREATE FUNCTION interlock.event_hash(t interlock.workflow_transitions) RETURNS bytea
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN interlock.chained(
        t.prev_hash, convert_to(t.id::text, 'UTF8'), convert_to(t.workflow_id::text, 'UTF8'), convert_to(t.seq::text, 'UTF8'),
        convert_to(t.definition_version, 'UTF8'), convert_to(t.from_state, 'UTF8'), convert_to(t.to_state, 'UTF8'),
        convert_to(t.trigger, 'UTF8'), convert_to(t.triggered_by, 'UTF8'), convert_to(t.request_id, 'UTF8'),
        convert_to(t.authority, 'UTF8'), convert_to(t.proof, 'UTF8'), convert_to(t.login, 'UTF8'), convert_to(t.severity, 'UTF8'),
        convert_to(t.metadata::text, 'UTF8'), convert_to(interlock.micros(t.created_at), 'UTF8'));
END $$;

-- Taking work ---------------------------------------------------------------------------------------------------------
-- A due request, with the instance it is meant for.
CREATE TYPE interlock.due AS (
    seq bigint, request_id varchar, trigger varchar, triggered_by varchar, metadata jsonb, origin varchar,
    authority varchar, bound_version integer, attempts integer, granted boolean,
    workflow_id uuid, workflow_type varchar, definition_version varchar, current_state varchar, version integer,
    context jsonb, project varchar, entity_id varchar, trace varchar, handover_id uuid
);

-- What is due in a partition, oldest first, each with the instance it is meant for. One call, one round trip, two statements:
-- the partition's lock is taken before the second one's snapshot, so that is newer than the partition's last commit, and nobody
-- else decides for these instances before we commit.
-- NO KEY: accepting a trigger, or following up, on an instance (a foreign key to it) does not wait for this round.
-- A request in retry stands in the way of those behind it on the same instance, but not of an operator's.
-- What stands is left to the sweep that applies it request by request.
-- `only_for`: what is due for these instances. Not `patient`: nothing, if somebody else has the partition's lock.
CREATE FUNCTION interlock.gather(namespace integer, wanted_partition integer, most integer, only_for uuid[], patient boolean)
    RETURNS SETOF interlock.due LANGUAGE plpgsql AS $$
BEGIN
    IF patient THEN
        PERFORM pg_advisory_xact_lock(namespace, wanted_partition);
    ELSIF NOT pg_try_advisory_xact_lock(namespace, wanted_partition) THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT r.seq, r.request_id, r.trigger, r.triggered_by, r.metadata, r.origin, r.authority, r.bound_version, r.attempts,
           r.granted, i.id, i.workflow_type, i.definition_version, i.current_state, i.version,
           CASE i.workflow_type WHEN 'circuit_breaker' THEN interlock.configured(i) ELSE i.context END,
           i.project, i.entity_id, r.trace, (SELECT h.handover_id FROM interlock.handovers h WHERE h.workflow_id = i.id)
      FROM (SELECT *
              FROM interlock.trigger_requests p
             WHERE p.status = 'pending' AND p.partition = wanted_partition
               AND (only_for IS NOT NULL OR NOT EXISTS (SELECT FROM interlock.partition_watch w WHERE w.partition = wanted_partition AND w.begun > 1))
               AND (only_for IS NULL OR p.workflow_id = ANY (only_for))
               AND NOT EXISTS (SELECT FROM interlock.trigger_requests b
                                WHERE b.workflow_id = p.workflow_id AND b.status = 'scheduled' AND b.attempts > 0
                                  AND b.seq < p.seq AND p.origin <> 'override')
             ORDER BY p.seq
             LIMIT most) r
      JOIN interlock.workflow_instances i ON i.id = r.workflow_id
     ORDER BY r.seq
       FOR NO KEY UPDATE OF i;
END $$;

-- What is due for some instances, in all their partitions: these are locked in ascending order, as everywhere.
CREATE FUNCTION interlock.gather_for(namespace integer, instances uuid[], most integer, patient boolean)
    RETURNS SETOF interlock.due LANGUAGE plpgsql AS $$
DECLARE
    each integer;
BEGIN
    FOR each IN SELECT DISTINCT get_byte(uuid_send(id), 15) % 16 FROM unnest(instances) AS id ORDER BY 1 LOOP
        RETURN QUERY SELECT * FROM interlock.gather(namespace, each, most, instances, patient);
    END LOOP;
END $$;
