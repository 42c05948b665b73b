-- A workstream (docs/spec/workstream.md), and how many of its tasks stand where, as the scheduler counted them.

CREATE TABLE interlock.workstreams (
    ws_id        uuid         PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    run_id       uuid         NOT NULL REFERENCES interlock.runs (run_id),
    phase_id     varchar(100) NOT NULL REFERENCES interlock.phases (phase_id),
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
    CHECK (updated_at >= created_at),
    CHECK (completed_at >= updated_at)
);
CREATE INDEX workstreams_run ON interlock.workstreams (run_id);
CREATE INDEX workstreams_state ON interlock.workstreams (state);
CREATE INDEX workstreams_updated ON interlock.workstreams (updated_at);

CREATE TABLE interlock.workstream_counts (
    ws_id      uuid    PRIMARY KEY REFERENCES interlock.workstreams (ws_id),
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

CREATE FUNCTION interlock.born_workstream(new interlock.workflow_instances) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    run        uuid    := (NEW.context->>'run_id')::uuid;
    critical   boolean := COALESCE((NEW.context->>'is_critical')::boolean, false);
    depends_on uuid[]  := interlock.uuids(NEW.context->'depends_on');
BEGIN
    INSERT INTO interlock.workstreams (ws_id, run_id, phase_id, state, is_critical, depends_on, affinity, created_at, updated_at,
                             metadata)
    VALUES (NEW.id, run, interlock.phase(NEW.context), NEW.current_state, critical, depends_on,
            interlock.texts(NEW.context->'affinity'), NEW.created_at, NEW.created_at, interlock.metadata(NEW.context));
    INSERT INTO interlock.workstream_counts (ws_id, unfinished_dependencies) VALUES (NEW.id, cardinality(depends_on));
    PERFORM interlock.signal(run, 'workstream', NEW.id, run, NULL, NEW.current_state, critical);
END $$;

CREATE FUNCTION interlock.moved_workstream(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    moved interlock.workstreams;
BEGIN
    UPDATE interlock.workstreams
       SET state = NEW.to_state,
           updated_at = GREATEST(NEW.created_at, updated_at),
           completed_at = CASE WHEN NEW.to_state IN ('completed', 'failed', 'cancelled', 'skipped')
                               THEN GREATEST(NEW.created_at, updated_at) END
     WHERE ws_id = NEW.workflow_id
    RETURNING * INTO moved;
    PERFORM interlock.signal(moved.run_id, 'workstream', moved.ws_id, moved.run_id, NEW.from_state, NEW.to_state,
                             moved.is_critical);
END $$;

CREATE FUNCTION interlock.plan_names_workstreams() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM interlock.plans WHERE run_id = NEW.run_id) THEN
        RAISE EXCEPTION 'run % takes no workstream that its plan does not name', NEW.run_id
            USING ERRCODE = 'check_violation', HINT = 'interlock run PLAN';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER of_the_plan BEFORE INSERT ON interlock.workstreams
    FOR EACH ROW EXECUTE FUNCTION interlock.plan_names_workstreams();
