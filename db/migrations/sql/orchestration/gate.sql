-- A test gate (docs/spec/gate.md).

CREATE TABLE interlock.test_gates (
    gate_id       uuid         PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    gate_type     varchar(20)  NOT NULL CHECK (gate_type IN ('LINT', 'UNIT', 'INTEGRATION', 'SECURITY')),
    phase_id      varchar(100) NOT NULL REFERENCES interlock.phases (phase_id),
    workstream_id uuid         REFERENCES interlock.workstreams (ws_id),
    run_id        uuid         REFERENCES interlock.runs (run_id),
    state         varchar(20)  NOT NULL CHECK (state IN ('PENDING', 'RUNNING', 'PASSED', 'FAILED', 'BLOCKED', 'CANCELLED')),
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
    CHECK (state NOT IN ('PASSED', 'FAILED', 'CANCELLED') OR completed_at IS NOT NULL),
    CHECK (state NOT IN ('PASSED', 'FAILED') OR (stdout IS NOT NULL AND stderr IS NOT NULL)),
    CHECK (started_at >= created_at),
    CHECK (completed_at >= started_at)
);
CREATE INDEX test_gates_workstream ON interlock.test_gates (workstream_id);
CREATE INDEX test_gates_state ON interlock.test_gates (state);
CREATE INDEX test_gates_type ON interlock.test_gates (gate_type);

CREATE FUNCTION interlock.born_test_gate(new interlock.workflow_instances) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    c          jsonb := NEW.context;
    workstream uuid  := (c->>'workstream_id')::uuid;
    run        uuid  := (SELECT run_id FROM interlock.workstreams WHERE ws_id = workstream);
BEGIN
    INSERT INTO interlock.test_gates (gate_id, gate_type, phase_id, workstream_id, run_id, state, command, depends_on, moment,
                            reruns_left, created_at)
    VALUES (NEW.id, c->>'gate_type', interlock.phase(NEW), workstream, run, NEW.current_state, COALESCE(c->'command', '[]'),
            interlock.uuids(c->'depends_on'), COALESCE(c->>'moment', 'start'),
            COALESCE((c->>'reruns_left')::integer, 0), NEW.created_at);
    IF run IS NOT NULL THEN
        PERFORM interlock.signal(run, 'test_gate', NEW.id, workstream, NULL, NEW.current_state, false);
    END IF;
END $$;

CREATE FUNCTION interlock.moved_test_gate(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    moved  interlock.test_gates;
    said   jsonb   := NEW.metadata;
    judged boolean := NEW.to_state IN ('PASSED', 'FAILED');
BEGIN
    IF NEW.trigger = 'gate_started' THEN  -- the effect that runs it goes on: its report is for the state it has entered
        UPDATE interlock.effects SET version = NEW.seq
         WHERE id = split_part(NEW.proof, ':', 2)::uuid AND workflow_id = NEW.workflow_id;
    END IF;
    UPDATE interlock.test_gates
       SET state = NEW.to_state,
           started_at = CASE WHEN NEW.to_state = 'RUNNING' THEN GREATEST(NEW.created_at, created_at) ELSE started_at END,
           completed_at = CASE WHEN judged OR NEW.to_state = 'CANCELLED'
                               THEN GREATEST(NEW.created_at, created_at, started_at) END,
           exit_code = CASE WHEN NEW.trigger = 'timeout_exceeded' THEN 124  -- as timeout(1) says
                            WHEN judged THEN (said->>'exit_code')::integer END,
           stdout = CASE WHEN judged THEN COALESCE(said->>'stdout', '') END,
           stderr = CASE WHEN judged THEN COALESCE(said->>'stderr', '') END,
           duration_sec = CASE WHEN judged THEN COALESCE((said->>'duration_sec')::double precision,
                                                         extract(epoch FROM NEW.created_at - started_at)) END
     WHERE gate_id = NEW.workflow_id
    RETURNING * INTO moved;
    IF moved.run_id IS NOT NULL THEN
        PERFORM interlock.signal(moved.run_id, 'test_gate', moved.gate_id, moved.workstream_id, NEW.from_state,
                                 NEW.to_state, false);
    END IF;
END $$;

-- What decides about whoever waits for a task's gates: how many have not passed, and one that can never pass, a failed one
-- if there is any. PostgreSQL inlines it, so it costs what a subquery costs.
CREATE FUNCTION interlock.gates_of(task uuid) RETURNS TABLE (open bigint, lost_gate jsonb) LANGUAGE sql STABLE ROWS 1
BEGIN ATOMIC
    SELECT count(*) FILTER (WHERE g.state <> 'PASSED'),
           (array_agg(jsonb_build_object(
                'gate', i.entity_id, 'exit_code', g.exit_code,
                'output', right(concat_ws(E'\n', NULLIF(g.stdout, ''), NULLIF(g.stderr, '')), 4000))
                ORDER BY g.state <> 'FAILED', g.gate_id) FILTER (WHERE g.lost))[1]
      FROM interlock.workflow_links l
      JOIN interlock.test_gates g ON g.gate_id = l.target_id
      JOIN interlock.workflow_instances i ON i.id = g.gate_id
     WHERE l.source_id = task AND l.role = 'gates';
END;
