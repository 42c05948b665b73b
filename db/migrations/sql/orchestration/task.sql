-- A task (docs/spec/task.md), who holds it, and what blocks it.

CREATE TABLE interlock.tasks (
    task_id               uuid        PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    workstream_id         uuid        NOT NULL REFERENCES interlock.workstreams (ws_id),
    run_id                uuid        NOT NULL REFERENCES interlock.runs (run_id),
    state                 varchar(20) NOT NULL,
    kind                  varchar(20) NOT NULL DEFAULT 'command',
    worker_id             uuid        REFERENCES interlock.workers (worker_id),
    is_critical           boolean     NOT NULL DEFAULT false,
    depends_on            uuid[]      NOT NULL DEFAULT '{}',
    gate_dependencies     uuid[]      NOT NULL DEFAULT '{}',
    blocked_by            uuid[]      NOT NULL DEFAULT '{}',  -- while blocked: the tasks and gates that stand in the way
    required_capabilities text[]      NOT NULL DEFAULT '{}',
    affinity              text[]      NOT NULL DEFAULT '{}',  -- empty: its workstream's
    tool                  varchar(100),  -- whose breaker it waits for: its command's; an agent's, as its context says
    limit_key             varchar(100),  -- the limits of this key count it, too
    priority              integer     NOT NULL DEFAULT 0,
    retry_count           integer     NOT NULL DEFAULT 0,
    max_retries           integer     NOT NULL DEFAULT 3,
    timeout_sec           double precision NOT NULL DEFAULT 1800,
    -- Kept by the scheduler: what still stands in the way, and what will do so for ever.
    unmet                 integer     NOT NULL DEFAULT 0,
    dead                  integer     NOT NULL DEFAULT 0,
    left_out              boolean     NOT NULL DEFAULT false,  -- by an operator: it counts no more, nobody waits for it
    exit_code             integer,
    last_error            text,
    created_at            timestamptz NOT NULL DEFAULT now(),
    started_at            timestamptz,
    completed_at          timestamptz,
    cancelled_at          timestamptz GENERATED ALWAYS AS (CASE WHEN state = 'cancelled' THEN completed_at END) STORED,
    metadata              jsonb       NOT NULL DEFAULT '{}'
) WITH (fillfactor = 70);
CREATE INDEX tasks_workstream ON interlock.tasks (workstream_id);
CREATE INDEX tasks_left_out ON interlock.tasks (workstream_id) WHERE left_out;
CREATE INDEX tasks_worker ON interlock.tasks (worker_id) WHERE worker_id IS NOT NULL;
CREATE INDEX tasks_running ON interlock.tasks (started_at) WHERE state = 'running';
CREATE INDEX tasks_queued ON interlock.tasks (run_id, priority DESC, task_id) WHERE state = 'queued';

-- What CHECKs would say of a task; prepared once a session, as `request_is_sound` is, because each move is a statement of its own.
CREATE FUNCTION interlock.task_is_sound() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    broken CONSTANT text := CASE
        WHEN NEW.state NOT IN ('pending', 'queued', 'running', 'validating', 'completed', 'failed', 'retrying', 'cancelled',
                               'blocked') THEN 'state'
        WHEN NEW.state <> 'blocked' AND NEW.blocked_by <> '{}' THEN 'blocked_by'
        WHEN (NEW.state = 'running') <> (NEW.worker_id IS NOT NULL) THEN 'worker_id'
        WHEN (NEW.state IN ('completed', 'failed', 'cancelled')) <> (NEW.completed_at IS NOT NULL) THEN 'completed_at'
        WHEN NOT NEW.retry_count BETWEEN 0 AND NEW.max_retries THEN 'retry_count'
        WHEN NEW.timeout_sec <= 0 THEN 'timeout_sec'
        WHEN NEW.unmet < 0 OR NEW.state = 'queued' AND NEW.unmet > 0 THEN 'unmet'  -- CHECK-6
        WHEN NEW.started_at < NEW.created_at THEN 'started_at'
        WHEN NEW.completed_at < GREATEST(NEW.created_at, NEW.started_at) THEN 'completed_at' END;
BEGIN
    IF broken IS NOT NULL THEN
        RAISE EXCEPTION '% of task % cannot be % while it is %', broken, NEW.task_id, COALESCE(to_jsonb(NEW)->>broken, 'empty'), NEW.state
            USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME, COLUMN = broken;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER sound BEFORE INSERT OR UPDATE ON interlock.tasks FOR EACH ROW EXECUTE FUNCTION interlock.task_is_sound();

-- Who holds a task. A claim's token fences off whoever lost it: revoked when the task left `running` without its worker
-- (cancelled, timed out, given to another), or `queued` for anything but `running`; ended when the worker let go, or when Interlock took note of a revocation.
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

-- All tasks that are born in a statement together, as they move: one by one, each would be three statements.
CREATE FUNCTION interlock.born_tasks() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    refused record;
BEGIN
    SELECT i.entity_id, i.context->>'workstream_id' AS workstream, w.state INTO refused
      FROM changed i
      LEFT JOIN LATERAL (SELECT * FROM interlock.workstreams WHERE ws_id = (i.context->>'workstream_id')::uuid OFFSET 0) w ON true
     WHERE i.workflow_type = 'task' AND i.definition_version NOT LIKE '0.%'
       AND (w.ws_id IS NULL OR w.state IN ('validating', 'completed', 'failed', 'cancelled', 'skipped'))
     LIMIT 1;
    IF FOUND AND refused.state IS NULL THEN
        RAISE EXCEPTION 'workstream % of task % does not exist', refused.workstream, refused.entity_id
            USING ERRCODE = 'foreign_key_violation';
    ELSIF FOUND THEN  -- WORKSTREAM-2
        RAISE EXCEPTION 'workstream % is %: it takes no more tasks', refused.workstream, refused.state USING ERRCODE = 'check_violation';
    END IF;
    WITH born AS (
        INSERT INTO interlock.tasks (task_id, workstream_id, run_id, state, kind, is_critical, depends_on, gate_dependencies,
                           required_capabilities, affinity, tool, limit_key, priority, retry_count, max_retries, timeout_sec, unmet, created_at,
                           metadata)
        SELECT i.id, w.ws_id, w.run_id, i.current_state, COALESCE(c->>'kind', 'command'), COALESCE((c->>'is_critical')::boolean, false),
               of.depends_on, interlock.uuids(c->'gates'), interlock.texts(c->'required_capabilities'), interlock.texts(c->'affinity'),
               CASE WHEN length(c->>'tool') <= 100 THEN c->>'tool' END, CASE WHEN length(c->>'limit_key') <= 100 THEN c->>'limit_key' END,
               COALESCE((c->>'priority')::integer, 0), COALESCE((c->>'retry_count')::integer, 0),
               COALESCE((c->>'max_retries')::integer, 3),
               COALESCE((c->>'timeout_sec')::double precision, 1800),
               cardinality(of.depends_on) + cardinality(interlock.uuids(c->'blocked_by_gates')), i.created_at, interlock.metadata(c)
          FROM changed i
         CROSS JOIN LATERAL (SELECT * FROM interlock.workstreams WHERE ws_id = (i.context->>'workstream_id')::uuid OFFSET 0) w
         CROSS JOIN LATERAL (SELECT i.context AS c, interlock.uuids(i.context->'depends_on') AS depends_on OFFSET 0) of
         WHERE i.workflow_type = 'task' AND i.definition_version NOT LIKE '0.%'
        RETURNING run_id, task_id, workstream_id, state, is_critical
    )
    INSERT INTO interlock.run_signals (run_id, kind, entity_id, parent_id, state, critical)
    SELECT run_id, 'task', task_id, workstream_id, state, is_critical FROM born;
    RETURN NULL;
END $$;

CREATE TRIGGER born_tasks AFTER INSERT ON interlock.workflow_instances
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION interlock.born_tasks();

-- Tasks follow all events of a statement together: one by one, each would be a statement of its own, which costs more than its row.
-- Of a task that moves several times in it, each event has its turn. A worker must be capable of what it is given (POLICY-7).
CREATE FUNCTION interlock.moved_tasks() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    turns  integer := (SELECT max(n) FROM (SELECT count(*) AS n FROM made WHERE workflow_type = 'task' GROUP BY workflow_id) each);
    unable record;
BEGIN
    FOR turn IN 1 .. COALESCE(turns, 0) LOOP
        WITH now AS MATERIALIZED (
            SELECT workflow_id, from_state, to_state, trigger, created_at, position, metadata AS said
              FROM (SELECT *, row_number() OVER (PARTITION BY workflow_id ORDER BY seq) AS nth FROM made WHERE workflow_type = 'task') each
             WHERE nth = turn AND definition_version NOT LIKE '0.%' AND trigger <> 'definition.migrate'
        ), revoked AS (
            UPDATE interlock.task_claims SET revoked_at = now()
             WHERE task_id = ANY (ARRAY(SELECT workflow_id FROM now
                                         WHERE from_state = 'running' OR from_state = 'queued' AND to_state <> 'running'))
               AND revoked_at IS NULL AND ended_at IS NULL
        ), moved AS (
            UPDATE interlock.tasks t
               SET state = n.to_state,
                   worker_id = CASE WHEN n.to_state = 'running' THEN (said->>'worker_id')::uuid END,
                   blocked_by = CASE WHEN n.to_state = 'blocked' THEN interlock.uuids(said->'blocked_by') ELSE '{}' END,
                   retry_count = retry_count + CASE WHEN n.to_state = 'retrying' THEN 1 ELSE 0 END,
                   exit_code = CASE WHEN n.from_state <> 'running' THEN exit_code
                                    WHEN said->>'exit_code' ~ '^-?[0-9]{1,9}$' THEN (said->>'exit_code')::integer END,
                   last_error = CASE WHEN n.to_state IN ('retrying', 'failed')
                                     THEN COALESCE(said->>'error', said->>'reason', n.trigger) ELSE last_error END,
                   started_at = CASE WHEN n.to_state = 'running' THEN GREATEST(n.created_at, t.created_at) ELSE started_at END,
                   completed_at = CASE WHEN n.to_state IN ('completed', 'failed', 'cancelled')
                                       THEN GREATEST(n.created_at, t.created_at, started_at) END
              FROM now n
             WHERE t.task_id = n.workflow_id
            RETURNING t.*, n.from_state, n.position
        ), told AS (
            INSERT INTO interlock.run_signals (run_id, kind, entity_id, parent_id, was, state, critical)
            SELECT run_id, 'task', task_id, workstream_id, from_state, state, is_critical FROM moved ORDER BY position
        )
        SELECT m.task_id, m.required_capabilities AS asked, m.worker_id INTO unable FROM moved m
         WHERE NOT m.required_capabilities <@ (SELECT w.capabilities FROM interlock.workers w WHERE w.worker_id = m.worker_id)
         LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'task % cannot enter running: its worker has no %', unable.task_id, array_to_string(ARRAY(
                SELECT unnest(unable.asked) EXCEPT
                SELECT unnest(w.capabilities) FROM interlock.workers w WHERE w.worker_id = unable.worker_id), ', ')
                USING ERRCODE = 'check_violation';
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

CREATE TRIGGER moved_tasks AFTER INSERT ON interlock.workflow_transitions
    REFERENCING NEW TABLE AS made FOR EACH STATEMENT EXECUTE FUNCTION interlock.moved_tasks();

-- What a worker must be capable of to be given a task (WORKER-3).
CREATE FUNCTION interlock.required_by(t interlock.tasks) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN t.required_capabilities || CASE t.kind WHEN 'agent' THEN 'interlock:agent' ELSE 'interlock:execute' END;

-- Whether a worker's and a task's affinities fit (WORKER-3); `s` is the task's workstream, and `i` its instance. `claim_task` and
-- `free_hands` are asked far more often: they say the same of a worker's lists, which they take out of its affinity once.
CREATE FUNCTION interlock.affinities_fit(w interlock.workers, t interlock.tasks, s interlock.workstreams,
                                         i interlock.workflow_instances) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (s.affinity = '{}' AND t.affinity = '{}'
            OR CASE t.affinity WHEN '{}' THEN s.affinity ELSE t.affinity END
                && ARRAY[split_part(w.name, '#', 1), w.worker_type::text])
       AND (interlock.texts(w.affinity->'phases') = '{}' OR s.phase_id = ANY (interlock.texts(w.affinity->'phases')))
       AND (interlock.texts(w.affinity->'workstreams') = '{}'
            OR ARRAY[s.ws_id::text, i.entity_id::text, i.context->>'name'] && interlock.texts(w.affinity->'workstreams'));

CREATE FUNCTION interlock.blocked_by(task uuid) RETURNS jsonb LANGUAGE sql STABLE  -- TASK-9
    RETURN (SELECT COALESCE(jsonb_agg(i.id ORDER BY i.id), '[]')
              FROM interlock.workflow_links l JOIN interlock.workflow_instances i ON i.id = l.target_id
             WHERE l.source_id = task
               AND CASE l.role WHEN 'depends_on' THEN i.current_state <> 'completed'
                               WHEN 'blocked_by_gates' THEN i.current_state <> 'PASSED'
                               WHEN 'gates' THEN i.current_state IN ('FAILED', 'BLOCKED') END);

CREATE TRIGGER critical_fixed BEFORE UPDATE OF is_critical ON interlock.tasks FOR EACH ROW  -- TASK-14
    WHEN (OLD.is_critical IS DISTINCT FROM NEW.is_critical) EXECUTE FUNCTION interlock.fixed('is_critical');
