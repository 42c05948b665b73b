-- The orchestration's typed tables (docs/spec/constraints.md). Each is a projection of history, written by PostgreSQL itself in
-- the statement that writes the event: a row is born with its instance, from its context, and follows every move, with
-- what the event's metadata says. A state written here without its event is refused at commit.
-- Ids are those of the instances; state lists are held equal to the definitions by a test.

-- Each kind's typed table, that table's key, and the column that says its state. The older lineage (0.x) has none.
CREATE FUNCTION interlock.kinds() RETURNS TABLE (type text, typed text, key text, state text)
    LANGUAGE sql IMMUTABLE AS $$
    VALUES ('run', 'runs', 'run_id', 'state'), ('workstream', 'workstreams', 'ws_id', 'state'),
           ('task', 'tasks', 'task_id', 'state'), ('worker', 'workers', 'worker_id', 'state'),
           ('uet_worker', 'uet_workers', 'worker_id', 'state'),
           ('patch_ledger', 'patch_ledger_entries', 'ledger_id', 'state'), ('test_gate', 'test_gates', 'gate_id', 'state'),
           ('circuit_breaker', 'circuit_breakers', 'breaker_id', 'state'),
           ('supervised_worker', 'supervised_workers', 'id', 'status'), ('job', 'jobs', 'id', 'status'),
           ('operator_grant', 'operators', 'grant_id', 'state'),
           ('deprecation', 'deprecations', 'deprecation_id', 'state')
$$;

CREATE TABLE interlock.phases (
    phase_id varchar(100) PRIMARY KEY
);

-- What the scheduler still has to look at: one row a move, insert-only, taken in order under the run's lock.
CREATE TABLE interlock.run_signals (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id    uuid        NOT NULL,
    kind      varchar(20) NOT NULL,
    entity_id uuid        NOT NULL,
    parent_id uuid,
    was       varchar(20),
    state     varchar(20) NOT NULL,
    critical  boolean     NOT NULL DEFAULT false
);
CREATE INDEX run_signals_run ON interlock.run_signals (run_id, id);

CREATE FUNCTION interlock.signal(run uuid, kind text, entity uuid, parent uuid, was text, state text, critical boolean)
    RETURNS void LANGUAGE sql
    BEGIN ATOMIC
        INSERT INTO interlock.run_signals (run_id, kind, entity_id, parent_id, was, state, critical)
        VALUES (run, kind, entity, parent, was, state, critical);
    END;

CREATE FUNCTION interlock.uuids(list jsonb) RETURNS uuid[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE((SELECT array_agg(each::uuid) FROM jsonb_array_elements_text(COALESCE(list, '[]')) AS each), '{}');

CREATE FUNCTION interlock.texts(list jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE((SELECT array_agg(each) FROM jsonb_array_elements_text(COALESCE(list, '[]')) AS each), '{}');

CREATE FUNCTION interlock.phase(context jsonb) RETURNS varchar LANGUAGE plpgsql AS $$
DECLARE
    named varchar := COALESCE(context->>'phase_id', 'default');
BEGIN
    INSERT INTO interlock.phases (phase_id) VALUES (named) ON CONFLICT DO NOTHING;
    RETURN named;
END $$;

-- The digest of a stored command, plan or patch. Instants are printed in a session's time zone, so they are hashed as
-- microseconds.
CREATE FUNCTION interlock.body_digest(body jsonb) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    RETURN encode(interlock.digest(body || CASE WHEN body ? 'created_at' THEN jsonb_build_object(
        'created_at', interlock.micros((body->>'created_at')::timestamptz)) ELSE '{}' END), 'hex');

-- From now on the hash of its instance's birth covers the row, and the patch that it names.
CREATE FUNCTION interlock.record_body_digest() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    stored jsonb := to_jsonb(NEW);
BEGIN
    UPDATE interlock.workflow_instances
       SET bodies = COALESCE(bodies, '{}') || jsonb_build_object(TG_TABLE_NAME, interlock.body_digest(stored))
                    || COALESCE((SELECT jsonb_build_object('patches', interlock.body_digest(to_jsonb(p)))
                                   FROM interlock.patches p WHERE p.patch_id = stored->>'patch_id'), '{}')
     WHERE id = (stored->>TG_ARGV[0])::uuid;
    RETURN NULL;
END $$;

-- What a row's metadata begins with: its name, its title, which instance it replaces (`retry_of`, RECOVER-4), and what its
-- context adds.
CREATE FUNCTION interlock.metadata(context jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN jsonb_strip_nulls(jsonb_build_object(
               'name', context->'name', 'title', context->'title', 'retry_of', context->'retry_of'))
           || CASE WHEN jsonb_typeof(context->'metadata') = 'object' THEN context->'metadata' ELSE '{}' END;
