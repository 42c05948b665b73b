-- The orchestration's typed tables (docs/spec/constraints.md). Each is a projection of history, written by PostgreSQL itself in
-- the statement that writes the event: a row is born with its instance, from its context, and follows every move, with
-- what the event's metadata says. A state written here without its event is refused at commit.
-- Ids are those of the instances; state lists are held equal to the definitions by a test.

-- Each kind's typed table, that table's key, and the column that says its state. The older lineage (0.x) has none.
CREATE FUNCTION interlock.kinds() RETURNS TABLE (type text, typed text, key text, state text)
    LANGUAGE sql IMMUTABLE AS $$
    VALUES ('run', 'runs', 'run_id', 'state'), ('workstream', 'workstreams', 'ws_id', 'state'),
           ('task', 'tasks', 'task_id', 'state'), ('worker', 'workers', 'worker_id', 'state'),
           ('uet_worker', 'workers', 'worker_id', 'state'),
           ('patch_ledger', 'patch_ledger_entries', 'ledger_id', 'state'), ('test_gate', 'test_gates', 'gate_id', 'state'),
           ('circuit_breaker', 'circuit_breakers', 'breaker_id', 'state'),
           ('supervised_worker', 'supervised_workers', 'id', 'status'), ('job', 'jobs', 'id', 'status'),
           ('operator_grant', 'operators', 'grant_id', 'state'),
           ('deprecation', 'deprecations', 'deprecation_id', 'state'),
           ('api_token', 'api_tokens', 'token_id', 'state')
$$;

-- The names of phases (docs/spec/phase.md): `default`, and those that plans have declared in any project.
CREATE TABLE interlock.phases (
    phase_id varchar(100) PRIMARY KEY
);
INSERT INTO interlock.phases VALUES ('default');

-- What the scheduler still has to look at: one row a move, insert-only, taken in order under the run's lock.
CREATE TABLE interlock.run_signals (
    id        bigint      GENERATED ALWAYS AS IDENTITY,
    run_id    uuid        NOT NULL,
    kind      varchar(20) NOT NULL,
    entity_id uuid        NOT NULL,
    parent_id uuid,
    was       varchar(20),
    state     varchar(20) NOT NULL,
    critical  boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (run_id, id)
);

CREATE FUNCTION interlock.signal(run uuid, kind text, entity uuid, parent uuid, was text, state text, critical boolean)
    RETURNS void LANGUAGE sql
    BEGIN ATOMIC
        INSERT INTO interlock.run_signals (run_id, kind, entity_id, parent_id, was, state, critical)
        VALUES (run, kind, entity, parent, was, state, critical);
    END;

-- Most lists in contexts are empty: those are no query.
CREATE FUNCTION interlock.uuids(list jsonb) RETURNS uuid[] LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF list IS NULL OR list = '[]' THEN
        RETURN '{}';
    END IF;
    RETURN (SELECT array_agg(each::uuid) FROM jsonb_array_elements_text(list) AS each);
END $$;

CREATE FUNCTION interlock.texts(list jsonb) RETURNS text[] LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF list IS NULL OR list = '[]' THEN
        RETURN '{}';
    END IF;
    RETURN (SELECT array_agg(each) FROM jsonb_array_elements_text(list) AS each);
END $$;

-- The instance of a project's phase; NULL: of `default`, where no plan of the project declares it.
CREATE FUNCTION interlock.phase_named(of_project varchar, named varchar) RETURNS uuid LANGUAGE sql STABLE
    RETURN (SELECT id FROM interlock.workflow_instances
             WHERE (project, workflow_type, entity_id) = (of_project, 'phase', named));

-- The name of an instance's phase, which its project has (PHASE-2).
CREATE FUNCTION interlock.phase(new interlock.workflow_instances) RETURNS varchar LANGUAGE plpgsql AS $$
DECLARE
    named varchar := COALESCE(new.context->>'phase_id', 'default');
BEGIN
    IF named <> 'default' AND interlock.phase_named(new.project, named) IS NULL THEN
        RAISE EXCEPTION 'project % has no phase %', new.project, named
            USING ERRCODE = 'foreign_key_violation', HINT = 'Declare it in the plan, under `phases`';
    END IF;
    RETURN named;
END $$;

CREATE FUNCTION interlock.born_phase(new interlock.workflow_instances) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO interlock.phases (phase_id) VALUES (NEW.entity_id) ON CONFLICT DO NOTHING;
END $$;

-- The schedulers of its runs look at its workstreams again.
CREATE FUNCTION interlock.moved_phase(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM interlock.signal(run_id, 'hold', ws_id, run_id, NEW.from_state, NEW.to_state, false)
       FROM interlock.workstreams WHERE phase = NEW.workflow_id AND completed_at IS NULL;
END $$;

-- The digest of a stored command, plan or patch. Instants are printed in a session's time zone, so they are hashed as
-- microseconds.
CREATE FUNCTION interlock.body_digest(body jsonb) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    RETURN encode(interlock.digest(body || CASE WHEN body ? 'created_at' THEN jsonb_build_object(
        'created_at', interlock.micros((body->>'created_at')::timestamptz)) ELSE '{}' END), 'hex');

-- From now on the hash of each instance's birth covers its row here, and the patch that the row names. The digests are collected in one
-- object, from which each instance takes its own: with a join, PostgreSQL might read one side whole for each row of the other (ADR 42).
CREATE FUNCTION interlock.record_body_digests() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    digests jsonb := (
        SELECT jsonb_object_agg(
                   s.stored->>TG_ARGV[0],
                   jsonb_build_object(TG_TABLE_NAME, interlock.body_digest(s.stored))
                   || COALESCE((SELECT jsonb_build_object('patches', interlock.body_digest(to_jsonb(p)))
                                  FROM interlock.patches p WHERE p.patch_id = s.stored->>'patch_id'), '{}'))
          FROM (SELECT to_jsonb(made) AS stored FROM made OFFSET 0) s);
BEGIN
    UPDATE interlock.workflow_instances i SET bodies = COALESCE(i.bodies, '{}') || (digests->i.id::text)
     WHERE i.id = ANY (ARRAY(SELECT jsonb_object_keys(digests)::uuid));
    RETURN NULL;
END $$;

-- What a row's metadata begins with: its name, its title, which instance it replaces (`retry_of`, RECOVER-4), and what its
-- context adds.
CREATE FUNCTION interlock.metadata(context jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN jsonb_strip_nulls(jsonb_build_object(
               'name', context->'name', 'title', context->'title', 'retry_of', context->'retry_of'))
           || CASE WHEN jsonb_typeof(context->'metadata') = 'object' THEN context->'metadata' ELSE '{}' END;
