-- Workers under a supervisor, and jobs (docs/spec/supervision.md).

CREATE TABLE interlock.supervised_workers (
    id           uuid        PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    workspace_id varchar(100) NOT NULL,
    status       varchar(20) NOT NULL CHECK (status IN ('IDLE', 'RUNNING', 'PAUSED', 'COMPLETED', 'FAILED',
                                                        'TERMINATED')),
    capacity     integer     NOT NULL DEFAULT 1 CHECK (capacity >= 1),
    tasks        text[]      NOT NULL DEFAULT '{}',  -- those that `start_task` named, until they are done (SUPERVISED-8)
    last_heartbeat timestamptz NOT NULL DEFAULT now(),
    created_at   timestamptz NOT NULL DEFAULT now(),
    updated_at   timestamptz NOT NULL DEFAULT now(),
    metadata     jsonb       NOT NULL DEFAULT '{}',
    CHECK (cardinality(tasks) <= capacity),
    CHECK (status <> 'COMPLETED' OR tasks = '{}'),
    CHECK (updated_at >= created_at),
    CHECK (last_heartbeat >= created_at)
);
CREATE INDEX supervised_workers_running ON interlock.supervised_workers (id) WHERE status = 'RUNNING';

CREATE TABLE interlock.jobs (
    id               uuid        PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    parent_job_id    uuid        REFERENCES interlock.jobs (id),
    depth            integer     NOT NULL CHECK (depth >= 0 AND depth <= 5),
    status           varchar(20) NOT NULL CHECK (status IN ('SUBMITTED', 'PENDING', 'RUNNING', 'COMPLETED', 'FAILED',
                                                            'CANCELED')),
    worker_count     integer     NOT NULL DEFAULT 1 CHECK (worker_count >= 1 AND worker_count <= 10),
    created_at       timestamptz NOT NULL DEFAULT now(),
    started_at       timestamptz,
    completed_at     timestamptz,
    task_description text        NOT NULL,
    CHECK (status IN ('SUBMITTED', 'CANCELED') OR task_description <> ''),  -- JOB-13
    CHECK ((status IN ('COMPLETED', 'FAILED', 'CANCELED')) = (completed_at IS NOT NULL)),
    CHECK (started_at >= created_at),
    CHECK (completed_at >= created_at),
    CHECK (completed_at >= started_at)
);
CREATE INDEX jobs_parent ON interlock.jobs (parent_job_id);
CREATE INDEX jobs_open ON interlock.jobs (created_at, id) WHERE completed_at IS NULL;

CREATE FUNCTION interlock.born_supervised_worker(new interlock.workflow_instances) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO interlock.supervised_workers (id, workspace_id, status, capacity, created_at, updated_at, last_heartbeat, metadata)
    VALUES (NEW.id, COALESCE(NEW.context->>'workspace_id', NEW.project), NEW.current_state,
            COALESCE((NEW.context->>'capacity')::integer, 1), NEW.created_at, NEW.created_at, NEW.created_at,
            interlock.metadata(NEW.context));
END $$;

CREATE FUNCTION interlock.born_job(new interlock.workflow_instances) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    above integer := (SELECT depth FROM interlock.jobs WHERE id = (NEW.context->>'parent_job_id')::uuid);
BEGIN
    IF above IS NOT NULL AND above + 1 <> (NEW.context->>'depth')::integer THEN
        RAISE EXCEPTION 'a child of a job of depth % has depth %, not %', above, above + 1, NEW.context->>'depth'
            USING ERRCODE = 'check_violation';
    END IF;
    INSERT INTO interlock.jobs (id, parent_job_id, depth, status, worker_count, created_at, task_description)
    VALUES (NEW.id, (NEW.context->>'parent_job_id')::uuid, (NEW.context->>'depth')::integer, NEW.current_state,
            COALESCE((NEW.context->>'worker_count')::integer, 1), NEW.created_at,
            COALESCE(NEW.context->>'task_description', ''));
END $$;

CREATE FUNCTION interlock.moved_supervised_worker(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE interlock.supervised_workers
       SET status = NEW.to_state, updated_at = NEW.created_at,
           tasks = CASE NEW.trigger
                        WHEN 'start_task' THEN interlock.texts(NEW.metadata->'tasks')
                        WHEN 'complete_tasks' THEN CASE WHEN NOT NEW.metadata ? 'operator' THEN  -- who overrides, answers for them
                            ARRAY(SELECT unnest(tasks) EXCEPT SELECT unnest(interlock.texts(NEW.metadata->'completed_tasks')))
                            ELSE '{}' END
                        ELSE tasks END,
           last_heartbeat = GREATEST(NEW.created_at, last_heartbeat)  -- a move counts as one (SUPERVISED-9)
     WHERE id = NEW.workflow_id;
END $$;

CREATE FUNCTION interlock.moved_job(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE interlock.jobs
       SET status = NEW.to_state,
           started_at = CASE WHEN NEW.to_state = 'RUNNING' THEN NEW.created_at ELSE started_at END,
           completed_at = CASE WHEN NEW.to_state IN ('COMPLETED', 'FAILED', 'CANCELED') THEN NEW.created_at END
     WHERE id = NEW.workflow_id;
END $$;
