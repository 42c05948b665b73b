-- The orchestration's typed tables (SSOT 6, MVP 5.1). Each is a projection of history, written by PostgreSQL itself in
-- the statement that writes the event: a row is born with its instance, from its context, and follows every move, with
-- what the event's metadata says. Whoever writes a state here that history does not tell is refused at commit.
-- Ids are those of the instances; state lists are held equal to the definitions by a test.

CREATE TABLE phases (
    phase_id varchar(100) PRIMARY KEY
);

CREATE TABLE runs (
    run_id       uuid         PRIMARY KEY REFERENCES workflow_instances (id),
    phase_id     varchar(100) NOT NULL REFERENCES phases (phase_id),
    state        varchar(20)  NOT NULL CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'canceled')),
    priority     integer      NOT NULL DEFAULT 0,
    created_at   timestamptz  NOT NULL DEFAULT now(),
    started_at   timestamptz,
    completed_at timestamptz,
    metadata     jsonb        NOT NULL DEFAULT '{}',
    CHECK ((state IN ('succeeded', 'failed', 'canceled')) = (completed_at IS NOT NULL)),
    -- A run canceled before it began has no start (DESIGN, ruling 9).
    CHECK (CASE state WHEN 'pending' THEN started_at IS NULL WHEN 'canceled' THEN true ELSE started_at IS NOT NULL END),
    CHECK (started_at >= created_at),
    CHECK (completed_at >= created_at AND (started_at IS NULL OR completed_at >= started_at))
);
CREATE INDEX runs_state ON runs (state);
CREATE INDEX runs_phase ON runs (phase_id);

CREATE TABLE workstreams (
    ws_id        uuid         PRIMARY KEY REFERENCES workflow_instances (id),
    run_id       uuid         NOT NULL REFERENCES runs (run_id),
    phase_id     varchar(100) NOT NULL REFERENCES phases (phase_id),
    state        varchar(20)  NOT NULL CHECK (state IN ('planned', 'ready', 'blocked', 'executing', 'validating',
                                                        'completed', 'failed', 'cancelled', 'skipped', 'paused')),
    is_critical  boolean      NOT NULL DEFAULT false,
    depends_on   uuid[]       NOT NULL DEFAULT '{}',
    affinity     text[]       NOT NULL DEFAULT '{}',
    created_at   timestamptz  NOT NULL DEFAULT now(),
    updated_at   timestamptz  NOT NULL DEFAULT now(),
    completed_at timestamptz,
    metadata     jsonb        NOT NULL DEFAULT '{}',
    CHECK ((state IN ('completed', 'failed', 'cancelled', 'skipped')) = (completed_at IS NOT NULL)),
    CHECK (updated_at >= created_at)
);
CREATE INDEX workstreams_run ON workstreams (run_id);
CREATE INDEX workstreams_state ON workstreams (state);
CREATE INDEX workstreams_updated ON workstreams (updated_at);

CREATE TABLE workers (
    worker_id            uuid        PRIMARY KEY REFERENCES workflow_instances (id),
    name                 varchar(100) NOT NULL,
    worker_type          varchar(50) NOT NULL,
    state                varchar(20) NOT NULL CHECK (state IN ('initializing', 'idle', 'busy', 'unresponsive',
                                                               'shutdown', 'suspended')),
    capabilities         text[]      NOT NULL DEFAULT '{}',
    affinity             jsonb       NOT NULL DEFAULT '{}',
    current_load         integer     NOT NULL DEFAULT 0 CHECK (current_load >= 0),
    max_concurrent_tasks integer     NOT NULL DEFAULT 1,
    draining             boolean     NOT NULL DEFAULT false,  -- takes no more; shut down once its load is 0
    last_heartbeat       timestamptz NOT NULL DEFAULT now(),
    last_took_at         timestamptz,
    created_at           timestamptz NOT NULL DEFAULT now(),
    shutdown_at          timestamptz,
    CHECK ((state = 'shutdown') = (shutdown_at IS NOT NULL)),
    CHECK (current_load <= max_concurrent_tasks)
) WITH (fillfactor = 60);  -- heartbeats stay heap-only: no index holds a column they change
CREATE INDEX workers_state ON workers (state);

CREATE TABLE uet_workers (
    worker_id      uuid        PRIMARY KEY REFERENCES workflow_instances (id),
    worker_type    varchar(50) NOT NULL,
    state          varchar(20) NOT NULL CHECK (state IN ('SPAWNING', 'IDLE', 'BUSY', 'DRAINING', 'TERMINATED')),
    affinity       jsonb       NOT NULL DEFAULT '{}',
    last_heartbeat timestamptz NOT NULL DEFAULT now(),
    created_at     timestamptz NOT NULL DEFAULT now(),
    terminated_at  timestamptz,
    CHECK ((state = 'TERMINATED') = (terminated_at IS NOT NULL))
);

CREATE TABLE tasks (
    task_id               uuid        PRIMARY KEY REFERENCES workflow_instances (id),
    workstream_id         uuid        NOT NULL REFERENCES workstreams (ws_id),
    run_id                uuid        NOT NULL REFERENCES runs (run_id),
    state                 varchar(20) NOT NULL CHECK (state IN ('pending', 'queued', 'running', 'validating', 'completed',
                                                                'failed', 'retrying', 'cancelled', 'blocked')),
    kind                  varchar(20) NOT NULL DEFAULT 'command',
    worker_id             uuid        REFERENCES workers (worker_id),
    is_critical           boolean     NOT NULL DEFAULT false,
    depends_on            uuid[]      NOT NULL DEFAULT '{}',
    gate_dependencies     uuid[]      NOT NULL DEFAULT '{}',
    required_capabilities text[]      NOT NULL DEFAULT '{}',
    priority              integer     NOT NULL DEFAULT 0,
    retry_count           integer     NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
    max_retries           integer     NOT NULL DEFAULT 3,
    timeout_sec           double precision NOT NULL DEFAULT 1800 CHECK (timeout_sec > 0),
    -- Kept by the scheduler: what still stands in the way, and what will do so for ever.
    unmet                 integer     NOT NULL DEFAULT 0 CHECK (unmet >= 0),
    dead                  integer     NOT NULL DEFAULT 0,
    exit_code             integer,
    last_error            text,
    created_at            timestamptz NOT NULL DEFAULT now(),
    started_at            timestamptz,
    completed_at          timestamptz,
    metadata              jsonb       NOT NULL DEFAULT '{}',
    CHECK ((state = 'running') = (worker_id IS NOT NULL)),
    CHECK ((state IN ('completed', 'failed', 'cancelled')) = (completed_at IS NOT NULL)),
    CHECK (retry_count <= max_retries),
    CHECK (state <> 'queued' OR unmet = 0),  -- SSOT 1.4.5, invariant 6
    CHECK (started_at >= created_at),
    CHECK (completed_at >= created_at AND (started_at IS NULL OR completed_at >= started_at))
) WITH (fillfactor = 70);
CREATE INDEX tasks_workstream ON tasks (workstream_id);
CREATE INDEX tasks_worker ON tasks (worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX tasks_running ON tasks (started_at) WHERE state = 'running';
CREATE INDEX tasks_queued ON tasks (run_id, priority DESC, task_id) WHERE state = 'queued';

CREATE TABLE patches (
    patch_id   varchar(100) PRIMARY KEY,
    body       text         NOT NULL,
    created_by varchar(100) NOT NULL,
    created_at timestamptz  NOT NULL DEFAULT now()
);

CREATE TABLE patch_ledger_entries (
    ledger_id                     uuid         PRIMARY KEY REFERENCES workflow_instances (id),
    patch_id                      varchar(100) NOT NULL REFERENCES patches (patch_id),
    workstream_id                 uuid         NOT NULL REFERENCES workstreams (ws_id),
    run_id                        uuid         NOT NULL REFERENCES runs (run_id),
    task_id                       uuid         REFERENCES tasks (task_id),
    phase_id                      varchar(100) NOT NULL REFERENCES phases (phase_id),
    state                         varchar(20)  NOT NULL CHECK (state IN (
                                      'created', 'validated', 'queued', 'applied', 'apply_failed', 'verified',
                                      'committed', 'rolled_back', 'quarantined', 'dropped')),
    validation_format_passed      boolean      NOT NULL DEFAULT false,
    validation_scope_passed       boolean      NOT NULL DEFAULT false,
    validation_constraints_passed boolean      NOT NULL DEFAULT false,
    validation_tests_passed       boolean      NOT NULL DEFAULT false,
    apply_retries                 integer      NOT NULL DEFAULT 0,
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
    -- The flags tell what the state claims (SSOT 2.2.5, invariant 3).
    CHECK (state IN ('created', 'quarantined', 'dropped')
           OR (validation_format_passed AND validation_scope_passed AND validation_constraints_passed)),
    CHECK (state NOT IN ('verified', 'committed', 'rolled_back') OR validation_tests_passed),
    CHECK (updated_at >= created_at)
);
CREATE INDEX patch_ledger_entries_workstream ON patch_ledger_entries (workstream_id);
CREATE INDEX patch_ledger_entries_state ON patch_ledger_entries (state);
CREATE INDEX patch_ledger_entries_updated ON patch_ledger_entries (updated_at);

CREATE TABLE test_gates (
    gate_id       uuid         PRIMARY KEY REFERENCES workflow_instances (id),
    gate_type     varchar(20)  NOT NULL CHECK (gate_type IN ('LINT', 'UNIT', 'INTEGRATION', 'SECURITY')),
    phase_id      varchar(100) NOT NULL REFERENCES phases (phase_id),
    workstream_id uuid         REFERENCES workstreams (ws_id),
    run_id        uuid         REFERENCES runs (run_id),
    state         varchar(20)  NOT NULL CHECK (state IN ('PENDING', 'RUNNING', 'PASSED', 'FAILED', 'BLOCKED')),
    command       jsonb        NOT NULL,
    depends_on    uuid[]       NOT NULL DEFAULT '{}',
    moment        varchar(10)  NOT NULL DEFAULT 'start' CHECK (moment IN ('start', 'task', 'final')),
    reruns_left   integer      NOT NULL DEFAULT 0,
    lost          boolean      NOT NULL DEFAULT false,  -- by the scheduler: it failed for good, or waits for one that did
    exit_code     integer,
    stdout        text,
    stderr        text,
    duration_sec  double precision,
    started_at    timestamptz,
    completed_at  timestamptz,
    created_at    timestamptz  NOT NULL DEFAULT now(),
    CHECK (state NOT IN ('PASSED', 'FAILED') OR exit_code IS NOT NULL),
    CHECK (state NOT IN ('PASSED', 'FAILED') OR completed_at IS NOT NULL),
    CHECK (state NOT IN ('PASSED', 'FAILED') OR (stdout IS NOT NULL AND stderr IS NOT NULL))
);
CREATE INDEX test_gates_workstream ON test_gates (workstream_id);
CREATE INDEX test_gates_state ON test_gates (state);
CREATE INDEX test_gates_type ON test_gates (gate_type);

CREATE TABLE circuit_breakers (
    breaker_id        uuid         PRIMARY KEY REFERENCES workflow_instances (id),
    project_id        uuid         NOT NULL,
    tool_id           varchar(100) NOT NULL,
    state             varchar(20)  NOT NULL CHECK (state IN ('CLOSED', 'OPEN', 'HALF_OPEN')),
    failure_threshold integer      NOT NULL DEFAULT 5 CHECK (failure_threshold >= 1),
    cooldown_seconds  double precision NOT NULL DEFAULT 60 CHECK (cooldown_seconds > 0),
    success_threshold integer      NOT NULL DEFAULT 1 CHECK (success_threshold >= 1),
    failure_count     integer      NOT NULL DEFAULT 0 CHECK (failure_count >= 0),
    success_count     integer      NOT NULL DEFAULT 0 CHECK (success_count >= 0),
    last_failure_at   timestamptz,
    opened_at         timestamptz,
    -- HALF_OPEN lets one request through: who holds this token until that instant.
    trial_token       uuid,
    trial_until       timestamptz,
    updated_at        timestamptz  NOT NULL DEFAULT now(),
    UNIQUE (project_id, tool_id)
);

CREATE TABLE supervised_workers (
    id           uuid        PRIMARY KEY REFERENCES workflow_instances (id),
    workspace_id varchar(100) NOT NULL,
    status       varchar(20) NOT NULL CHECK (status IN ('IDLE', 'RUNNING', 'PAUSED', 'COMPLETED', 'FAILED',
                                                        'TERMINATED')),
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    metadata     jsonb       NOT NULL DEFAULT '{}'
);

CREATE TABLE jobs (
    id               uuid        PRIMARY KEY REFERENCES workflow_instances (id),
    parent_job_id    uuid        REFERENCES jobs (id),
    depth            integer     NOT NULL CHECK (depth >= 0 AND depth <= 5),
    status           varchar(20) NOT NULL CHECK (status IN ('SUBMITTED', 'PENDING', 'RUNNING', 'COMPLETED', 'FAILED',
                                                            'CANCELED')),
    worker_count     integer     NOT NULL DEFAULT 1 CHECK (worker_count >= 1 AND worker_count <= 10),
    created_at       timestamptz NOT NULL DEFAULT now(),
    started_at       timestamptz,
    completed_at     timestamptz,
    task_description text        NOT NULL,
    CHECK ((status IN ('COMPLETED', 'FAILED', 'CANCELED')) = (completed_at IS NOT NULL))
);
CREATE INDEX jobs_parent ON jobs (parent_job_id);

-- Who holds a task. A claim's token fences off whoever lost it: revoked when the task left `running` without its worker
-- (cancelled, timed out, given to another), ended when the worker let go. -----------------------------------------------

CREATE TABLE task_claims (
    token      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id    uuid        NOT NULL REFERENCES tasks (task_id),
    run_id     uuid        NOT NULL,
    worker_id  uuid        NOT NULL REFERENCES workers (worker_id),
    claimed_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz,
    ended_at   timestamptz
);
CREATE UNIQUE INDEX task_claims_open ON task_claims (task_id) WHERE revoked_at IS NULL AND ended_at IS NULL;
CREATE INDEX task_claims_worker ON task_claims (worker_id) WHERE ended_at IS NULL;
CREATE INDEX task_claims_run ON task_claims (run_id) WHERE ended_at IS NULL;

-- What the scheduler still has to look at: one row a move, insert-only, taken in order under the run's lock. ------------

CREATE TABLE run_signals (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id    uuid        NOT NULL,
    kind      varchar(20) NOT NULL,
    entity_id uuid        NOT NULL,
    parent_id uuid,
    was       varchar(20),
    state     varchar(20) NOT NULL,
    critical  boolean     NOT NULL DEFAULT false
);
CREATE INDEX run_signals_run ON run_signals (run_id, id);

-- How many of a workstream's tasks, of a run's workstreams, stand where. Only the scheduler writes these, so that no two
-- workers ever wait for each other's counting.

CREATE TABLE workstream_counts (
    ws_id      uuid    PRIMARY KEY REFERENCES workstreams (ws_id),
    pending    integer NOT NULL DEFAULT 0,
    queued     integer NOT NULL DEFAULT 0,
    running    integer NOT NULL DEFAULT 0,
    validating integer NOT NULL DEFAULT 0,
    completed  integer NOT NULL DEFAULT 0,
    failed     integer NOT NULL DEFAULT 0,
    retrying   integer NOT NULL DEFAULT 0,
    cancelled  integer NOT NULL DEFAULT 0,
    blocked    integer NOT NULL DEFAULT 0,
    critical_failures       integer NOT NULL DEFAULT 0,
    quarantined_patches     integer NOT NULL DEFAULT 0,
    unfinished_dependencies integer NOT NULL DEFAULT 0,
    skipped_dependencies    integer NOT NULL DEFAULT 0,
    dead_dependencies       integer NOT NULL DEFAULT 0
) WITH (fillfactor = 60);

CREATE TABLE run_counts (
    run_id     uuid    PRIMARY KEY REFERENCES runs (run_id),
    planned    integer NOT NULL DEFAULT 0,
    ready      integer NOT NULL DEFAULT 0,
    blocked    integer NOT NULL DEFAULT 0,
    executing  integer NOT NULL DEFAULT 0,
    validating integer NOT NULL DEFAULT 0,
    paused     integer NOT NULL DEFAULT 0,
    completed  integer NOT NULL DEFAULT 0,
    failed     integer NOT NULL DEFAULT 0,
    cancelled  integer NOT NULL DEFAULT 0,
    skipped    integer NOT NULL DEFAULT 0,
    critical_failures integer NOT NULL DEFAULT 0
) WITH (fillfactor = 60);

-- The plan a run carries out, as it was read, with its repository.
CREATE TABLE plans (
    run_id    uuid  PRIMARY KEY REFERENCES runs (run_id),
    body      jsonb NOT NULL,
    directory text  NOT NULL
);

-- Births ------------------------------------------------------------------------------------------------------------------

CREATE FUNCTION interlock_uuids(list jsonb) RETURNS uuid[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE((SELECT array_agg(each::uuid) FROM jsonb_array_elements_text(COALESCE(list, '[]')) AS each), '{}');

CREATE FUNCTION interlock_texts(list jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE((SELECT array_agg(each) FROM jsonb_array_elements_text(COALESCE(list, '[]')) AS each), '{}');

CREATE FUNCTION interlock_phase(context jsonb) RETURNS varchar LANGUAGE plpgsql AS $$
DECLARE
    named varchar := COALESCE(context->>'phase_id', 'default');
BEGIN
    INSERT INTO phases (phase_id) VALUES (named) ON CONFLICT DO NOTHING;
    RETURN named;
END $$;

CREATE FUNCTION interlock_signal(run uuid, kind text, entity uuid, parent uuid, was text, state text, critical boolean)
    RETURNS void LANGUAGE sql
    BEGIN ATOMIC
        INSERT INTO run_signals (run_id, kind, entity_id, parent_id, was, state, critical)
        VALUES (run, kind, entity, parent, was, state, critical);
    END;

CREATE FUNCTION interlock_born_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO runs (run_id, phase_id, state, priority, created_at)
    VALUES (NEW.id, interlock_phase(NEW.context), NEW.current_state, COALESCE((NEW.context->>'priority')::integer, 0),
            NEW.created_at);
    INSERT INTO run_counts (run_id) VALUES (NEW.id);
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_born_workstream() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    run        uuid    := (NEW.context->>'run_id')::uuid;
    critical   boolean := COALESCE((NEW.context->>'is_critical')::boolean, false);
    depends_on uuid[]  := interlock_uuids(NEW.context->'depends_on');
BEGIN
    INSERT INTO workstreams (ws_id, run_id, phase_id, state, is_critical, depends_on, affinity, created_at, updated_at)
    VALUES (NEW.id, run, interlock_phase(NEW.context), NEW.current_state, critical, depends_on,
            interlock_texts(NEW.context->'affinity'), NEW.created_at, NEW.created_at);
    INSERT INTO workstream_counts (ws_id, unfinished_dependencies) VALUES (NEW.id, cardinality(depends_on));
    PERFORM interlock_signal(run, 'workstream', NEW.id, run, NULL, NEW.current_state, critical);
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_born_task() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    c          jsonb   := NEW.context;
    workstream uuid    := (c->>'workstream_id')::uuid;
    run        uuid    := (SELECT run_id FROM workstreams WHERE ws_id = workstream);
    critical   boolean := COALESCE((c->>'is_critical')::boolean, false);
    depends_on uuid[]  := interlock_uuids(c->'depends_on');
    before     uuid[]  := interlock_uuids(c->'blocked_by_gates');
BEGIN
    INSERT INTO tasks (task_id, workstream_id, run_id, state, kind, is_critical, depends_on, gate_dependencies,
                       required_capabilities, priority, max_retries, timeout_sec, unmet, created_at)
    VALUES (NEW.id, workstream, run, NEW.current_state, COALESCE(c->>'kind', 'command'), critical, depends_on,
            interlock_uuids(c->'gates'), interlock_texts(c->'required_capabilities'),
            COALESCE((c->>'priority')::integer, 0), COALESCE((c->>'max_retries')::integer, 3),
            COALESCE((c->>'timeout_sec')::double precision, 1800), cardinality(depends_on) + cardinality(before),
            NEW.created_at);
    PERFORM interlock_signal(run, 'task', NEW.id, workstream, NULL, NEW.current_state, critical);
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_born_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO workers (worker_id, name, worker_type, state, capabilities, affinity, max_concurrent_tasks, created_at)
    VALUES (NEW.id, NEW.entity_id, COALESCE(NEW.context->>'worker_type', 'orchestration'), NEW.current_state,
            interlock_texts(NEW.context->'capabilities'), COALESCE(NEW.context->'affinity', '{}'),
            COALESCE((NEW.context->>'max_concurrent_tasks')::integer, 1), NEW.created_at);
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_born_uet_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO uet_workers (worker_id, worker_type, state, affinity, created_at)
    VALUES (NEW.id, COALESCE(NEW.context->>'worker_type', 'uet'), NEW.current_state,
            COALESCE(NEW.context->'affinity', '{}'), NEW.created_at);
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_born_patch_ledger() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    workstream workstreams;
BEGIN
    SELECT * INTO STRICT workstream FROM workstreams WHERE ws_id = (NEW.context->>'workstream_id')::uuid;
    INSERT INTO patch_ledger_entries (ledger_id, patch_id, workstream_id, run_id, task_id, phase_id, state, state_history,
                                      created_at, updated_at)
    VALUES (NEW.id, NEW.context->>'patch_id', workstream.ws_id, workstream.run_id, (NEW.context->>'task_id')::uuid,
            workstream.phase_id, NEW.current_state,
            jsonb_build_array(jsonb_build_object('state', NEW.current_state, 'at', NEW.created_at)),
            NEW.created_at, NEW.created_at);
    PERFORM interlock_signal(workstream.run_id, 'patch_ledger', NEW.id, workstream.ws_id, NULL, NEW.current_state, false);
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_born_test_gate() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    c          jsonb := NEW.context;
    workstream uuid  := (c->>'workstream_id')::uuid;
    run        uuid  := (SELECT run_id FROM workstreams WHERE ws_id = workstream);
BEGIN
    INSERT INTO test_gates (gate_id, gate_type, phase_id, workstream_id, run_id, state, command, depends_on, moment,
                            reruns_left, created_at)
    VALUES (NEW.id, c->>'gate_type', interlock_phase(c), workstream, run, NEW.current_state, c->'command',
            interlock_uuids(c->'depends_on'), COALESCE(c->>'moment', 'start'),
            COALESCE((c->>'reruns_left')::integer, 0), NEW.created_at);
    IF run IS NOT NULL THEN
        PERFORM interlock_signal(run, 'test_gate', NEW.id, workstream, NULL, NEW.current_state, false);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_born_circuit_breaker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO circuit_breakers (breaker_id, project_id, tool_id, state, failure_threshold, cooldown_seconds,
                                  success_threshold)
    VALUES (NEW.id, NEW.project_id, NEW.context->>'tool_id', NEW.current_state,
            COALESCE((NEW.context->>'failure_threshold')::integer, 5),
            COALESCE((NEW.context->>'cooldown_seconds')::double precision, 60),
            COALESCE((NEW.context->>'success_threshold')::integer, 1));
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_born_supervised_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO supervised_workers (id, workspace_id, status, created_at, updated_at)
    VALUES (NEW.id, COALESCE(NEW.context->>'workspace_id', NEW.project_id::text), NEW.current_state, NEW.created_at,
            NEW.created_at);
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_born_job() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    above integer := (SELECT depth FROM jobs WHERE id = (NEW.context->>'parent_job_id')::uuid);
BEGIN
    IF above IS NOT NULL AND above + 1 <> (NEW.context->>'depth')::integer THEN
        RAISE EXCEPTION 'a child of a job of depth % has depth %, not %', above, above + 1, NEW.context->>'depth'
            USING ERRCODE = 'check_violation';
    END IF;
    INSERT INTO jobs (id, parent_job_id, depth, status, worker_count, created_at, task_description)
    VALUES (NEW.id, (NEW.context->>'parent_job_id')::uuid, (NEW.context->>'depth')::integer, NEW.current_state,
            COALESCE((NEW.context->>'worker_count')::integer, 1), NEW.created_at,
            COALESCE(NEW.context->>'task_description', ''));
    RETURN NULL;
END $$;

-- Moves -------------------------------------------------------------------------------------------------------------------
-- `GREATEST`: a clock set back must not make an end precede its beginning.

CREATE FUNCTION interlock_moved_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE runs
       SET state = NEW.to_state,
           started_at = CASE WHEN NEW.to_state = 'running' THEN GREATEST(NEW.created_at, created_at) ELSE started_at END,
           completed_at = CASE WHEN NEW.to_state IN ('succeeded', 'failed', 'canceled')
                               THEN GREATEST(NEW.created_at, created_at, started_at) END
     WHERE run_id = NEW.workflow_id;
    PERFORM interlock_signal(NEW.workflow_id, 'run', NEW.workflow_id, NULL, NEW.from_state, NEW.to_state, false);
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_moved_workstream() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moved workstreams;
BEGIN
    UPDATE workstreams
       SET state = NEW.to_state,
           updated_at = GREATEST(NEW.created_at, updated_at),
           completed_at = CASE WHEN NEW.to_state IN ('completed', 'failed', 'cancelled', 'skipped')
                               THEN GREATEST(NEW.created_at, created_at) END
     WHERE ws_id = NEW.workflow_id
    RETURNING * INTO moved;
    PERFORM interlock_signal(moved.run_id, 'workstream', moved.ws_id, moved.run_id, NEW.from_state, NEW.to_state,
                             moved.is_critical);
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_moved_task() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moved tasks;
    said  jsonb := NEW.metadata;
BEGIN
    UPDATE tasks
       SET state = NEW.to_state,
           worker_id = CASE WHEN NEW.to_state = 'running' THEN (said->>'worker_id')::uuid END,
           retry_count = retry_count + CASE WHEN NEW.to_state = 'retrying' THEN 1 ELSE 0 END,
           exit_code = CASE WHEN NEW.from_state = 'running' THEN (said->>'exit_code')::integer ELSE exit_code END,
           last_error = CASE WHEN NEW.to_state IN ('retrying', 'failed')
                             THEN COALESCE(said->>'error', said->>'reason', NEW.trigger) ELSE last_error END,
           started_at = CASE WHEN NEW.to_state = 'running' THEN GREATEST(NEW.created_at, created_at) ELSE started_at END,
           completed_at = CASE WHEN NEW.to_state IN ('completed', 'failed', 'cancelled')
                               THEN GREATEST(NEW.created_at, created_at, started_at) END
     WHERE task_id = NEW.workflow_id
    RETURNING * INTO moved;
    IF NEW.from_state = 'running' THEN
        UPDATE task_claims SET revoked_at = now()
         WHERE task_id = NEW.workflow_id AND revoked_at IS NULL AND ended_at IS NULL;
    END IF;
    PERFORM interlock_signal(moved.run_id, 'task', moved.task_id, moved.workstream_id, NEW.from_state, NEW.to_state,
                             moved.is_critical);
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_moved_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE workers
       SET state = NEW.to_state,
           shutdown_at = CASE WHEN NEW.to_state = 'shutdown' THEN NEW.created_at END
     WHERE worker_id = NEW.workflow_id;
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_moved_uet_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE uet_workers
       SET state = NEW.to_state,
           terminated_at = CASE WHEN NEW.to_state = 'TERMINATED' THEN NEW.created_at END
     WHERE worker_id = NEW.workflow_id;
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_moved_patch_ledger() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moved   patch_ledger_entries;
    said    jsonb := NEW.metadata;
    results jsonb := COALESCE(said->'validation_results', '{}');
BEGIN
    UPDATE patch_ledger_entries
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
           quarantined_at = CASE WHEN NEW.to_state = 'quarantined' THEN NEW.created_at ELSE quarantined_at END,
           rollback_reason = CASE WHEN NEW.to_state = 'rolled_back' THEN said->>'reason' ELSE rollback_reason END,
           rollback_compensation = CASE WHEN NEW.to_state = 'rolled_back' THEN said->'compensation'
                                        ELSE rollback_compensation END,
           rolled_back_at = CASE WHEN NEW.to_state = 'rolled_back' THEN NEW.created_at ELSE rolled_back_at END,
           state_history = state_history || jsonb_build_object(
               'state', NEW.to_state, 'at', NEW.created_at, 'trigger', NEW.trigger, 'reason', said->'reason'),
           updated_at = GREATEST(NEW.created_at, updated_at)
     WHERE ledger_id = NEW.workflow_id
    RETURNING * INTO moved;
    PERFORM interlock_signal(moved.run_id, 'patch_ledger', moved.ledger_id, moved.workstream_id, NEW.from_state,
                             NEW.to_state, false);
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_moved_test_gate() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    moved test_gates;
    said  jsonb   := NEW.metadata;
    ended boolean := NEW.to_state IN ('PASSED', 'FAILED');
BEGIN
    UPDATE test_gates
       SET state = NEW.to_state,
           started_at = CASE WHEN NEW.to_state = 'RUNNING' THEN GREATEST(NEW.created_at, created_at) ELSE started_at END,
           completed_at = CASE WHEN ended THEN GREATEST(NEW.created_at, created_at, started_at) END,
           exit_code = CASE WHEN ended THEN (said->>'exit_code')::integer END,
           stdout = CASE WHEN ended THEN COALESCE(said->>'stdout', '') END,
           stderr = CASE WHEN ended THEN COALESCE(said->>'stderr', '') END,
           duration_sec = CASE WHEN ended THEN COALESCE((said->>'duration_sec')::double precision,
                                                        extract(epoch FROM NEW.created_at - started_at)) END
     WHERE gate_id = NEW.workflow_id
    RETURNING * INTO moved;
    IF moved.run_id IS NOT NULL THEN
        PERFORM interlock_signal(moved.run_id, 'test_gate', moved.gate_id, moved.workstream_id, NEW.from_state,
                                 NEW.to_state, false);
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_moved_circuit_breaker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE circuit_breakers
       SET state = NEW.to_state,
           opened_at = CASE WHEN NEW.to_state = 'OPEN' THEN NEW.created_at ELSE opened_at END,
           failure_count = CASE WHEN NEW.to_state = 'CLOSED' THEN 0 ELSE failure_count END,
           success_count = 0, trial_token = NULL, trial_until = NULL,
           updated_at = NEW.created_at
     WHERE breaker_id = NEW.workflow_id;
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_moved_supervised_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE supervised_workers SET status = NEW.to_state, updated_at = NEW.created_at WHERE id = NEW.workflow_id;
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_moved_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE jobs
       SET status = NEW.to_state,
           started_at = CASE WHEN NEW.to_state = 'RUNNING' THEN NEW.created_at ELSE started_at END,
           completed_at = CASE WHEN NEW.to_state IN ('COMPLETED', 'FAILED', 'CANCELED') THEN NEW.created_at END
     WHERE id = NEW.workflow_id;
    RETURN NULL;
END $$;

-- Required metadata (SSOT 7.2.3): what the trigger did not say itself is filled in before the event is hashed. ------------

CREATE FUNCTION interlock_add_facts() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    facts jsonb;
BEGIN
    CASE NEW.workflow_type
        WHEN 'task' THEN
            SELECT jsonb_build_object(
                       'worker_id', worker_id, 'retry_count', retry_count, 'exit_code', NULL,
                       'duration_seconds', CASE WHEN NEW.from_state = 'running'
                                                THEN round(extract(epoch FROM now() - started_at), 3) END,
                       'timeout_occurred', NEW.trigger = 'timeout_exceeded')
              INTO facts FROM tasks WHERE task_id = NEW.workflow_id;
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
                           'format', validation_format_passed, 'scope', validation_scope_passed,
                           'constraints', validation_constraints_passed,
                           'tests', validation_tests_passed OR NEW.to_state = 'verified'))
              INTO facts FROM patch_ledger_entries WHERE ledger_id = NEW.workflow_id;
        WHEN 'worker' THEN
            SELECT jsonb_build_object(
                       'heartbeat_status', CASE WHEN NEW.to_state IN ('unresponsive') OR NEW.trigger = 'max_timeout_exceeded'
                                                THEN 'silent' ELSE 'healthy' END,
                       'current_load', current_load, 'crash_detected', NEW.trigger = 'max_timeout_exceeded',
                       'last_heartbeat_age_seconds', round(extract(epoch FROM now() - last_heartbeat), 3))
              INTO facts FROM workers WHERE worker_id = NEW.workflow_id;
    END CASE;
    NEW.metadata := COALESCE(facts, '{}') || NEW.metadata;
    RETURN NEW;
END $$;

CREATE TRIGGER add_facts BEFORE INSERT ON workflow_transitions  -- triggers fire by name: before `append`, which hashes
    FOR EACH ROW WHEN (NEW.workflow_type IN ('task', 'workstream', 'patch_ledger', 'worker')
                       AND NEW.definition_version NOT LIKE '0.%')
    EXECUTE FUNCTION interlock_add_facts();
ALTER TABLE workflow_transitions ENABLE ALWAYS TRIGGER add_facts;

-- Each kind's triggers. The older lineage (0.x) has no typed tables. ---------------------------------------------------------

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

CREATE FUNCTION interlock_fixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % cannot change', TG_ARGV[0], TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;

DO $$
DECLARE
    kind record;
BEGIN
    FOR kind IN SELECT * FROM (VALUES
        ('run', 'runs', 'run_id', 'state'), ('workstream', 'workstreams', 'ws_id', 'state'),
        ('task', 'tasks', 'task_id', 'state'), ('worker', 'workers', 'worker_id', 'state'),
        ('uet_worker', 'uet_workers', 'worker_id', 'state'),
        ('patch_ledger', 'patch_ledger_entries', 'ledger_id', 'state'), ('test_gate', 'test_gates', 'gate_id', 'state'),
        ('circuit_breaker', 'circuit_breakers', 'breaker_id', 'state'),
        ('supervised_worker', 'supervised_workers', 'id', 'status'), ('job', 'jobs', 'id', 'status')
    ) AS kinds (type, typed, key, state) LOOP
        EXECUTE format('CREATE TRIGGER born_%1$s AFTER INSERT ON workflow_instances FOR EACH ROW
            WHEN (NEW.workflow_type = %1$L AND NEW.definition_version NOT LIKE ''0.%%'')
            EXECUTE FUNCTION interlock_born_%1$s()', kind.type);
        EXECUTE format('ALTER TABLE workflow_instances ENABLE ALWAYS TRIGGER born_%s', kind.type);
        EXECUTE format('CREATE TRIGGER moved_%1$s AFTER INSERT ON workflow_transitions FOR EACH ROW
            WHEN (NEW.workflow_type = %1$L AND NEW.definition_version NOT LIKE ''0.%%'')
            EXECUTE FUNCTION interlock_moved_%1$s()', kind.type);
        EXECUTE format('ALTER TABLE workflow_transitions ENABLE ALWAYS TRIGGER moved_%s', kind.type);
        EXECUTE format('CREATE CONSTRAINT TRIGGER state_is_told AFTER INSERT OR UPDATE OF %2$I ON %1$I
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
            EXECUTE FUNCTION interlock_typed_state_is_told(%3$L)', kind.typed, kind.state, kind.key);
        EXECUTE format('CREATE TRIGGER kept BEFORE DELETE ON %I FOR EACH ROW EXECUTE FUNCTION interlock_refuse()',
            kind.typed);
        EXECUTE format('CREATE TRIGGER kept_whole BEFORE TRUNCATE ON %I
            FOR EACH STATEMENT EXECUTE FUNCTION interlock_refuse()', kind.typed);
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER state_is_told, ENABLE ALWAYS TRIGGER kept,
            ENABLE ALWAYS TRIGGER kept_whole', kind.typed);
    END LOOP;
END $$;

CREATE TRIGGER critical_fixed BEFORE UPDATE OF is_critical ON tasks FOR EACH ROW  -- SSOT 1.4.5, invariant 8
    WHEN (OLD.is_critical IS DISTINCT FROM NEW.is_critical) EXECUTE FUNCTION interlock_fixed('is_critical');
CREATE TRIGGER affinity_fixed BEFORE UPDATE OF affinity ON workers FOR EACH ROW  -- SSOT 1.5.7, invariant 4
    WHEN (OLD.affinity IS DISTINCT FROM NEW.affinity AND OLD.state <> 'initializing')
    EXECUTE FUNCTION interlock_fixed('affinity');
CREATE TRIGGER affinity_fixed BEFORE UPDATE OF affinity ON uet_workers FOR EACH ROW  -- SSOT 2.1.3, invariant 3
    WHEN (OLD.affinity IS DISTINCT FROM NEW.affinity AND OLD.state <> 'SPAWNING')
    EXECUTE FUNCTION interlock_fixed('affinity');
ALTER TABLE tasks ENABLE ALWAYS TRIGGER critical_fixed;
ALTER TABLE workers ENABLE ALWAYS TRIGGER affinity_fixed;
ALTER TABLE uet_workers ENABLE ALWAYS TRIGGER affinity_fixed;

-- A patch's text is what was reviewed and applied: it never changes.
CREATE TRIGGER kept BEFORE UPDATE OR DELETE ON patches FOR EACH ROW EXECUTE FUNCTION interlock_refuse();
ALTER TABLE patches ENABLE ALWAYS TRIGGER kept;

CREATE TRIGGER past_fixed BEFORE UPDATE OF state_history ON patch_ledger_entries FOR EACH ROW  -- SSOT 2.2.5, invariant 1
    WHEN (NEW.state_history IS DISTINCT FROM OLD.state_history
          AND (jsonb_array_length(NEW.state_history) <> jsonb_array_length(OLD.state_history) + 1
               OR NEW.state_history - (-1) <> OLD.state_history))
    EXECUTE FUNCTION interlock_fixed('the past told by state_history');
ALTER TABLE patch_ledger_entries ENABLE ALWAYS TRIGGER past_fixed;

-- The seeds' views (SSOT 6.7, MVP 5.1) ---------------------------------------------------------------------------------------

CREATE VIEW state_transitions AS
    SELECT t.position AS transition_id, t.workflow_type AS entity_type, i.entity_id, t.from_state, t.to_state, t.trigger,
           t.metadata->>'reason' AS reason, t.metadata, t.metadata->>'operator' AS operator,
           t.created_at AS transitioned_at, t.workflow_id
      FROM workflow_transitions t JOIN workflow_instances i ON i.id = t.workflow_id;

CREATE VIEW worker_state_transitions AS
    SELECT t.position AS id, t.workflow_id AS worker_id, t.from_state, t.to_state, t.metadata->>'reason' AS reason,
           t.created_at AS "timestamp"
      FROM workflow_transitions t WHERE t.workflow_type = 'supervised_worker';

CREATE VIEW job_state_transitions AS
    SELECT t.position AS id, t.workflow_id AS job_id, t.from_state, t.to_state, t.metadata->>'reason' AS reason,
           t.created_at AS "timestamp"
      FROM workflow_transitions t WHERE t.workflow_type = 'job';
