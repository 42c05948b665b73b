-- Workers: those of the orchestration (`worker`) and of an execution engine (`uet_worker`). One table, because tasks and claims
-- name either (docs/spec/worker.md).

CREATE TABLE interlock.workers (
    worker_id            uuid        PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    name                 varchar(100) NOT NULL,
    project              varchar(100),  -- whose tasks a `uet_worker` takes (UET-9); NULL: a `worker`, which serves all projects
    worker_type          varchar(100) NOT NULL,
    state                varchar(20) NOT NULL CHECK (state IN ('initializing', 'idle', 'busy', 'unresponsive',
                                                               'shutdown', 'suspended',
                                                               'SPAWNING', 'IDLE', 'BUSY', 'DRAINING', 'TERMINATED')),
    capabilities         text[]      NOT NULL DEFAULT '{}',
    affinity             jsonb       NOT NULL DEFAULT '{}',
    current_load         integer     NOT NULL DEFAULT 0 CHECK (current_load >= 0),
    max_concurrent_tasks integer     NOT NULL DEFAULT 1,
    draining             boolean     NOT NULL DEFAULT false,  -- takes no more; shut down once its load is 0
    drained_by           varchar(100),                        -- who wants it to leave, and why; NULL: itself
    drain_reason         text,
    last_heartbeat       timestamptz NOT NULL DEFAULT now(),
    last_took_at         timestamptz,
    created_at           timestamptz NOT NULL DEFAULT now(),
    shutdown_at          timestamptz,
    CHECK ((state IN ('shutdown', 'TERMINATED')) = (shutdown_at IS NOT NULL)),
    CHECK (current_load <= max_concurrent_tasks),
    CHECK (last_heartbeat >= created_at),
    CHECK (shutdown_at >= created_at)
) WITH (fillfactor = 60);  -- heartbeats stay heap-only: no index holds a column they change
CREATE INDEX workers_state ON interlock.workers (state);
CREATE INDEX workers_name ON interlock.workers (name);  -- `speaks_for_another` asks whether a name is a worker's

CREATE VIEW interlock.uet_workers AS
    SELECT worker_id, worker_type, state, affinity, last_heartbeat, created_at, shutdown_at AS terminated_at
      FROM interlock.workers WHERE project IS NOT NULL;

CREATE FUNCTION interlock.born_worker(new interlock.workflow_instances) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO interlock.workers (worker_id, name, worker_type, state, capabilities, affinity, max_concurrent_tasks, created_at,
                         last_heartbeat)
    VALUES (NEW.id, NEW.entity_id, COALESCE(NEW.context->>'worker_type', 'orchestration'), NEW.current_state,
            interlock.texts(NEW.context->'capabilities'), COALESCE(NEW.context->'affinity', '{}'),
            COALESCE((NEW.context->>'max_concurrent_tasks')::integer, 1), NEW.created_at, NEW.created_at);
END $$;

-- It is outside, like an agent, and takes what agents take.
CREATE FUNCTION interlock.born_uet_worker(new interlock.workflow_instances) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO interlock.workers (worker_id, name, project, worker_type, state, capabilities, affinity, created_at, last_heartbeat)
    VALUES (NEW.id, NEW.entity_id, NEW.project, COALESCE(NEW.context->>'worker_type', 'uet'), NEW.current_state,
            interlock.texts(NEW.context->'capabilities') || 'interlock:agent'::text, COALESCE(NEW.context->'affinity', '{}'),
            NEW.created_at, NEW.created_at);
END $$;

CREATE FUNCTION interlock.moved_worker(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE interlock.workers
       SET state = NEW.to_state,
           shutdown_at = CASE WHEN NEW.to_state = 'shutdown' THEN GREATEST(NEW.created_at, created_at) END
     WHERE worker_id = NEW.workflow_id;
END $$;

CREATE FUNCTION interlock.moved_uet_worker(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE interlock.workers
       SET state = NEW.to_state, draining = draining OR NEW.to_state = 'DRAINING',
           shutdown_at = CASE WHEN NEW.to_state = 'TERMINATED' THEN GREATEST(NEW.created_at, created_at) END,
           -- Heartbeats are owed from IDLE on (UET-1), however long it was SPAWNING.
           last_heartbeat = CASE NEW.from_state WHEN 'SPAWNING' THEN GREATEST(NEW.created_at, last_heartbeat)
                                                ELSE last_heartbeat END
     WHERE worker_id = NEW.workflow_id;
END $$;

CREATE TRIGGER affinity_fixed BEFORE UPDATE OF affinity ON interlock.workers FOR EACH ROW  -- WORKER-5, UET-3
    WHEN (OLD.affinity IS DISTINCT FROM NEW.affinity AND OLD.state NOT IN ('initializing', 'SPAWNING'))
    EXECUTE FUNCTION interlock.fixed('affinity');
