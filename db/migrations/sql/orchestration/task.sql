-- A task (docs/spec/task.md), who holds it, and what blocks it.

CREATE TABLE interlock.tasks (
    task_id               uuid        PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    workstream_id         uuid        NOT NULL REFERENCES interlock.workstreams (ws_id),
    run_id                uuid        NOT NULL REFERENCES interlock.runs (run_id),
    state                 varchar(20) NOT NULL CHECK (state IN ('pending', 'queued', 'running', 'validating', 'completed',
                                                                'failed', 'retrying', 'cancelled', 'blocked')),
    kind                  varchar(20) NOT NULL DEFAULT 'command',
    worker_id             uuid        REFERENCES interlock.workers (worker_id),
    is_critical           boolean     NOT NULL DEFAULT false,
    depends_on            uuid[]      NOT NULL DEFAULT '{}',
    gate_dependencies     uuid[]      NOT NULL DEFAULT '{}',
    blocked_by            uuid[]      NOT NULL DEFAULT '{}',  -- while blocked: the tasks and gates that stand in the way
    required_capabilities text[]      NOT NULL DEFAULT '{}',
    affinity              text[]      NOT NULL DEFAULT '{}',  -- empty: its workstream's
    tool                  varchar(100),  -- whose breaker it waits for: its command's; an agent's, as its context says
    priority              integer     NOT NULL DEFAULT 0,
    retry_count           integer     NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
    max_retries           integer     NOT NULL DEFAULT 3,
    timeout_sec           double precision NOT NULL DEFAULT 1800 CHECK (timeout_sec > 0),
    -- Kept by the scheduler: what still stands in the way, and what will do so for ever.
    unmet                 integer     NOT NULL DEFAULT 0 CHECK (unmet >= 0),
    dead                  integer     NOT NULL DEFAULT 0,
    left_out              boolean     NOT NULL DEFAULT false,  -- by an operator: it counts no more, nobody waits for it
    exit_code             integer,
    last_error            text,
    created_at            timestamptz NOT NULL DEFAULT now(),
    started_at            timestamptz,
    completed_at          timestamptz,
    cancelled_at          timestamptz GENERATED ALWAYS AS (CASE WHEN state = 'cancelled' THEN completed_at END) STORED,
    metadata              jsonb       NOT NULL DEFAULT '{}',
    CHECK (state = 'blocked' OR blocked_by = '{}'),
    CHECK ((state = 'running') = (worker_id IS NOT NULL)),
    CHECK ((state IN ('completed', 'failed', 'cancelled')) = (completed_at IS NOT NULL)),
    CHECK (retry_count <= max_retries),
    CHECK (state <> 'queued' OR unmet = 0),  -- CHECK-6
    CHECK (started_at >= created_at),
    CHECK (completed_at >= created_at AND (started_at IS NULL OR completed_at >= started_at))
) WITH (fillfactor = 70);
CREATE INDEX tasks_workstream ON interlock.tasks (workstream_id);
CREATE INDEX tasks_left_out ON interlock.tasks (workstream_id) WHERE left_out;
CREATE INDEX tasks_worker ON interlock.tasks (worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX tasks_running ON interlock.tasks (started_at) WHERE state = 'running';
CREATE INDEX tasks_queued ON interlock.tasks (run_id, priority DESC, task_id) WHERE state = 'queued';

-- Who holds a task. A claim's token fences off whoever lost it: revoked when the task left `running` without its worker
-- (cancelled, timed out, given to another); ended when the worker let go, or when Interlock took note of a revocation.
CREATE TABLE interlock.task_claims (
    claim_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- 52 random bits, which only the claim's holder gets: history and logs name it by its id.
    token      bigint      NOT NULL UNIQUE
                           DEFAULT ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 18, 13))::bit(52)::bigint,
    task_id    uuid        NOT NULL REFERENCES interlock.tasks (task_id),
    run_id     uuid        NOT NULL,
    worker_id  uuid        NOT NULL REFERENCES interlock.workers (worker_id),
    claimed_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz,
    ended_at   timestamptz
);
CREATE UNIQUE INDEX task_claims_open ON interlock.task_claims (task_id) WHERE revoked_at IS NULL AND ended_at IS NULL;
CREATE INDEX task_claims_worker ON interlock.task_claims (worker_id) WHERE ended_at IS NULL;
CREATE INDEX task_claims_run ON interlock.task_claims (run_id) WHERE ended_at IS NULL;

-- What is looked up when a row leaves that others may name.
CREATE INDEX task_claims_task ON interlock.task_claims (task_id);

-- A worker's load is the number of its claims that have not ended, whoever takes and ends them (WORKER-4).
CREATE FUNCTION interlock.claim_weighs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE interlock.workers
       SET current_load = current_load + CASE TG_OP WHEN 'INSERT' THEN 1 ELSE -1 END,
           last_took_at = CASE TG_OP WHEN 'INSERT' THEN now() ELSE last_took_at END
     WHERE worker_id = COALESCE(NEW.worker_id, OLD.worker_id);
    RETURN NULL;
END $$;

CREATE TRIGGER claim_taken AFTER INSERT ON interlock.task_claims FOR EACH ROW
    WHEN (NEW.ended_at IS NULL) EXECUTE FUNCTION interlock.claim_weighs();
CREATE TRIGGER claim_ended AFTER UPDATE OF ended_at ON interlock.task_claims FOR EACH ROW
    WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL) EXECUTE FUNCTION interlock.claim_weighs();
CREATE TRIGGER claim_deleted AFTER DELETE ON interlock.task_claims FOR EACH ROW
    WHEN (OLD.ended_at IS NULL) EXECUTE FUNCTION interlock.claim_weighs();

CREATE FUNCTION interlock.born_task(new interlock.workflow_instances) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    c          jsonb   := NEW.context;
    workstream uuid    := (c->>'workstream_id')::uuid;
    run        uuid;
    its_state  varchar;
    critical   boolean := COALESCE((c->>'is_critical')::boolean, false);
    depends_on uuid[]  := interlock.uuids(c->'depends_on');
    before     uuid[]  := interlock.uuids(c->'blocked_by_gates');
BEGIN
    SELECT run_id, state INTO run, its_state FROM interlock.workstreams WHERE ws_id = workstream;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'workstream % of task % does not exist', workstream, NEW.entity_id
            USING ERRCODE = 'foreign_key_violation';
    ELSIF its_state IN ('validating', 'completed', 'failed', 'cancelled', 'skipped') THEN  -- WORKSTREAM-2
        RAISE EXCEPTION 'workstream % is %: it takes no more tasks', workstream, its_state USING ERRCODE = 'check_violation';
    END IF;
    INSERT INTO interlock.tasks (task_id, workstream_id, run_id, state, kind, is_critical, depends_on, gate_dependencies,
                       required_capabilities, affinity, tool, priority, retry_count, max_retries, timeout_sec, unmet, created_at,
                       metadata)
    VALUES (NEW.id, workstream, run, NEW.current_state, COALESCE(c->>'kind', 'command'), critical, depends_on,
            interlock.uuids(c->'gates'), interlock.texts(c->'required_capabilities'), interlock.texts(c->'affinity'),
            CASE WHEN length(c->>'tool') <= 100 THEN c->>'tool' END,
            COALESCE((c->>'priority')::integer, 0), COALESCE((c->>'retry_count')::integer, 0),
            COALESCE((c->>'max_retries')::integer, 3),
            COALESCE((c->>'timeout_sec')::double precision, 1800), cardinality(depends_on) + cardinality(before),
            NEW.created_at, interlock.metadata(c));
    PERFORM interlock.signal(run, 'task', NEW.id, workstream, NULL, NEW.current_state, critical);
END $$;

CREATE FUNCTION interlock.moved_task(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    moved interlock.tasks;
    said  jsonb := NEW.metadata;
BEGIN
    UPDATE interlock.tasks
       SET state = NEW.to_state,
           worker_id = CASE WHEN NEW.to_state = 'running' THEN (said->>'worker_id')::uuid END,
           blocked_by = CASE WHEN NEW.to_state = 'blocked' THEN interlock.uuids(said->'blocked_by') ELSE '{}' END,
           retry_count = retry_count + CASE WHEN NEW.to_state = 'retrying' THEN 1 ELSE 0 END,
           exit_code = CASE WHEN NEW.from_state <> 'running' THEN exit_code
                            WHEN said->>'exit_code' ~ '^-?[0-9]{1,9}$' THEN (said->>'exit_code')::integer END,
           last_error = CASE WHEN NEW.to_state IN ('retrying', 'failed')
                             THEN COALESCE(said->>'error', said->>'reason', NEW.trigger) ELSE last_error END,
           started_at = CASE WHEN NEW.to_state = 'running' THEN GREATEST(NEW.created_at, created_at) ELSE started_at END,
           completed_at = CASE WHEN NEW.to_state IN ('completed', 'failed', 'cancelled')
                               THEN GREATEST(NEW.created_at, created_at, started_at) END
     WHERE task_id = NEW.workflow_id
    RETURNING * INTO moved;
    IF NEW.from_state = 'running' THEN
        UPDATE interlock.task_claims SET revoked_at = now()
         WHERE task_id = NEW.workflow_id AND revoked_at IS NULL AND ended_at IS NULL;
    END IF;
    PERFORM interlock.signal(moved.run_id, 'task', moved.task_id, moved.workstream_id, NEW.from_state, NEW.to_state,
                             moved.is_critical);
END $$;

CREATE FUNCTION interlock.blocked_by(task uuid) RETURNS jsonb LANGUAGE sql STABLE  -- TASK-9
    RETURN (SELECT COALESCE(jsonb_agg(i.id ORDER BY i.id), '[]')
              FROM interlock.workflow_links l JOIN interlock.workflow_instances i ON i.id = l.target_id
             WHERE l.source_id = task
               AND CASE l.role WHEN 'depends_on' THEN i.current_state <> 'completed'
                               WHEN 'blocked_by_gates' THEN i.current_state <> 'PASSED'
                               WHEN 'gates' THEN i.current_state IN ('FAILED', 'BLOCKED') END);

CREATE TRIGGER critical_fixed BEFORE UPDATE OF is_critical ON interlock.tasks FOR EACH ROW  -- TASK-14
    WHEN (OLD.is_critical IS DISTINCT FROM NEW.is_critical) EXECUTE FUNCTION interlock.fixed('is_critical');
