-- A workstream (docs/spec/workstream.md), and how many of its tasks stand where, as the scheduler counted them.

CREATE TABLE interlock.workstreams (
    ws_id        uuid         PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    run_id       uuid         NOT NULL REFERENCES interlock.runs (run_id),
    phase_id     varchar(100) NOT NULL REFERENCES interlock.phases (phase_id),
    phase        uuid         REFERENCES interlock.workflow_instances (id),  -- its instance, if a plan declares it
    state        varchar(20)  NOT NULL CHECK (state IN ('planned', 'ready', 'blocked', 'executing', 'validating',
                                                        'completed', 'failed', 'cancelled', 'skipped', 'paused')),
    is_critical  boolean      NOT NULL DEFAULT false,
    depends_on   uuid[]       NOT NULL DEFAULT '{}',
    affinity     text[]       NOT NULL DEFAULT '{}',
    left_out     boolean      NOT NULL DEFAULT false,  -- an operator had it done again: another one counts in its place
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
CREATE INDEX workstreams_phase ON interlock.workstreams (phase) WHERE phase IS NOT NULL AND completed_at IS NULL;
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
    phase_id   varchar := interlock.phase(NEW);
BEGIN
    INSERT INTO interlock.workstreams (ws_id, run_id, phase_id, phase, state, is_critical, depends_on, affinity, created_at, updated_at,
                             metadata)
    VALUES (NEW.id, run, phase_id, interlock.phase_named(NEW.project, phase_id), NEW.current_state, critical, depends_on,
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

-- The approval that a workstream needs to land (PHASE-7): its `state`, with who decided it and why; `missing` if it was not asked for
-- yet. NULL: it needs none, or is not being validated. It counts only under the terms of the plan, for the present version.
CREATE FUNCTION interlock.landing_approval(w interlock.workstreams) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    approvers jsonb;
    found     jsonb;
BEGIN
    IF w.state <> 'validating' OR w.phase IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT body->'phases'->w.phase_id->'approvers' INTO approvers FROM interlock.plans WHERE run_id = w.run_id;
    IF COALESCE(jsonb_array_length(approvers), 0) = 0 THEN
        RETURN NULL;
    END IF;
    SELECT jsonb_build_object('state', a.current_state, 'by', t.triggered_by, 'reason', t.metadata->>'reason') INTO found
      FROM interlock.workflow_instances i
      JOIN interlock.workflow_instances r ON r.id = w.run_id
      JOIN interlock.workflow_links l ON l.target_id = i.id AND l.role = 'lands'
      JOIN interlock.workflow_instances a ON a.id = l.source_id AND a.workflow_type = 'approval'
      LEFT JOIN interlock.workflow_transitions t ON t.workflow_id = a.id AND t.seq = a.version
     WHERE i.id = w.ws_id AND a.context->>'subject_id' = i.id::text AND a.context->'deciders' = approvers
       AND a.context->>'author' = r.created_by AND interlock.held_for(a.id) = i.version
     ORDER BY a.created_at DESC, a.id DESC LIMIT 1;
    RETURN COALESCE(found, '{"state": "missing"}');
END $$;

-- The scheduler of its run looks at a workstream again once its landing is decided.
CREATE FUNCTION interlock.moved_approval(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM interlock.signal(w.run_id, 'hold', w.ws_id, w.run_id, NEW.from_state, NEW.to_state, false)
       FROM interlock.workflow_links l JOIN interlock.workstreams w ON w.ws_id = l.target_id
      WHERE l.source_id = NEW.workflow_id AND l.role = 'lands' AND w.completed_at IS NULL;
END $$;

-- WORKSTREAM-15: or an operator has one done again that ended without completing.
CREATE FUNCTION interlock.plan_names_workstreams() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM interlock.plans WHERE run_id = NEW.run_id)
       AND NOT EXISTS (SELECT FROM interlock.workflow_instances mine
                         JOIN interlock.workflow_instances past ON past.id::text = mine.context->>'retry_of'
                         JOIN interlock.workstreams w ON w.ws_id = past.id
                        WHERE mine.id = NEW.ws_id AND w.run_id = NEW.run_id AND NOT w.left_out
                          AND w.state IN ('failed', 'cancelled', 'skipped')
                          AND mine.context->>'name' = past.context->>'name'
                          AND interlock.is_operator(mine.created_by)) THEN
        RAISE EXCEPTION 'run % takes no workstream that its plan does not name', NEW.run_id
            USING ERRCODE = 'check_violation', HINT = 'interlock run PLAN';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER of_the_plan BEFORE INSERT ON interlock.workstreams
    FOR EACH ROW EXECUTE FUNCTION interlock.plan_names_workstreams();
