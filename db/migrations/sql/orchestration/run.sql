-- A run (docs/spec/run.md), the plan it carries out, and how many of its workstreams stand where. Only the scheduler
-- counts, so that no two workers ever wait for each other's counting.

CREATE TABLE interlock.runs (
    run_id       uuid         PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    phase_id     varchar(100) NOT NULL REFERENCES interlock.phases (phase_id),
    state        varchar(20)  NOT NULL CHECK (state IN ('pending', 'running', 'succeeded', 'failed', 'canceled')),
    priority     integer      NOT NULL DEFAULT 0,
    created_at   timestamptz  NOT NULL DEFAULT now(),
    started_at   timestamptz,
    completed_at timestamptz,
    metadata     jsonb        NOT NULL DEFAULT '{}',
    CHECK ((state IN ('succeeded', 'failed', 'canceled')) = (completed_at IS NOT NULL)),
    -- A run canceled before it began has no start (CHECK-3).
    CHECK (CASE state WHEN 'pending' THEN started_at IS NULL WHEN 'canceled' THEN true ELSE started_at IS NOT NULL END),
    CHECK (started_at >= created_at),
    CHECK (completed_at >= created_at AND (started_at IS NULL OR completed_at >= started_at))
);
CREATE INDEX runs_state ON interlock.runs (state);
CREATE INDEX runs_phase ON interlock.runs (phase_id);

CREATE TABLE interlock.run_counts (
    run_id     uuid    PRIMARY KEY REFERENCES interlock.runs (run_id),
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
CREATE TABLE interlock.plans (
    run_id    uuid  PRIMARY KEY REFERENCES interlock.runs (run_id),
    body      jsonb NOT NULL,
    directory text  NOT NULL
);

CREATE FUNCTION interlock.born_run(new interlock.workflow_instances) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO interlock.runs (run_id, phase_id, state, priority, created_at, metadata)
    VALUES (NEW.id, interlock.phase(NEW), NEW.current_state, COALESCE((NEW.context->>'priority')::integer, 0),
            NEW.created_at, interlock.metadata(NEW.context));
    INSERT INTO interlock.run_counts (run_id) VALUES (NEW.id);
END $$;

-- `GREATEST`: a clock set back must not make an end precede its beginning.
CREATE FUNCTION interlock.moved_run(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE interlock.runs
       SET state = NEW.to_state,
           started_at = CASE WHEN NEW.to_state = 'running' THEN GREATEST(NEW.created_at, created_at) ELSE started_at END,
           completed_at = CASE WHEN NEW.to_state IN ('succeeded', 'failed', 'canceled')
                               THEN GREATEST(NEW.created_at, created_at, started_at) END
     WHERE run_id = NEW.workflow_id;
    PERFORM interlock.signal(NEW.workflow_id, 'run', NEW.workflow_id, NULL, NEW.from_state, NEW.to_state, false);
END $$;

-- A plan says where its run's work is done, so it comes with its run and stays as it is; and it names all workstreams:
-- one more under the name of another would get that one's branch and worktree.
CREATE FUNCTION interlock.plan_made() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM interlock.workflow_instances
                WHERE id = NEW.run_id AND workflow_type = 'run' AND version = 0 AND created_at = now()) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'run % cannot get a plan: a plan is stored when its run is created', NEW.run_id
        USING ERRCODE = 'restrict_violation', HINT = 'interlock run PLAN';
END $$;

CREATE TRIGGER made BEFORE INSERT ON interlock.plans FOR EACH ROW EXECUTE FUNCTION interlock.plan_made();

CREATE TRIGGER record_body_digests AFTER INSERT ON interlock.plans REFERENCING NEW TABLE AS made FOR EACH STATEMENT
    EXECUTE FUNCTION interlock.record_body_digests('run_id');
