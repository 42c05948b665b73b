-- What workers carry out for a task, a gate or a patch. It is never read from a context, which any caller writes: a row
-- here comes with a submitted plan or from an operator, and only in the transaction in which its instance is born. It never changes. Raw SQL is held to all of it.

CREATE TABLE interlock.commands (
    workflow_id         uuid         PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    run_id              uuid         NOT NULL REFERENCES interlock.plans (run_id),
    source              varchar(10)  NOT NULL CHECK (source IN ('plan', 'operator')),
    made_by             varchar(100) NOT NULL CHECK (interlock.is_name(made_by)),
    reason              text         CHECK (interlock.is_reason(reason)),
    kind                varchar(10)  NOT NULL CHECK (kind IN ('command', 'shell', 'patch')),
    argv                text[]       NOT NULL DEFAULT '{}',  -- of kind shell: one line
    env                 jsonb        NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(env) = 'object'),
    env_from            jsonb        NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(env_from) = 'object'),
    cwd                 text,
    limits              jsonb        NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(limits) = 'object'),
    sandbox             jsonb        NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(sandbox) = 'object'),
    timeout_sec         double precision CHECK (timeout_sec > 0),
    expected_exit_codes integer[]    NOT NULL DEFAULT '{0}' CHECK (cardinality(expected_exit_codes) > 0),
    tool                varchar(100),
    patch_id            varchar(100) REFERENCES interlock.patches (patch_id),
    message             text,
    CHECK (source = 'plan' OR reason IS NOT NULL),
    CHECK ((kind = 'patch') = (patch_id IS NOT NULL)),
    CHECK ((kind = 'patch') = (argv = '{}')),
    CHECK (kind <> 'shell' OR cardinality(argv) = 1)
);
CREATE INDEX commands_patch ON interlock.commands (patch_id) WHERE patch_id IS NOT NULL;

-- All commands of a statement together. An operator's, one that comes with the plan of its run, or that of a failed gate, which is run
-- again: the very same.
CREATE FUNCTION interlock.commands_made() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    refused uuid := (
        SELECT m.workflow_id
          FROM made m
          LEFT JOIN LATERAL (
                SELECT CASE i.workflow_type WHEN 'task' THEN (SELECT t.run_id FROM interlock.tasks t WHERE t.task_id = i.id)
                                            WHEN 'test_gate' THEN (SELECT g.run_id FROM interlock.test_gates g WHERE g.gate_id = i.id) END
                           AS run_id,
                       CASE i.workflow_type WHEN 'test_gate' THEN i.context->>'retry_of' END AS replaces
                  FROM interlock.workflow_instances i
                 WHERE i.id = m.workflow_id AND i.created_at = now() AND i.version = 0 OFFSET 0) its ON true
         WHERE its.run_id IS DISTINCT FROM m.run_id
            OR CASE WHEN m.source = 'operator' THEN interlock.is_operator(m.made_by)
                    WHEN (SELECT r.created_at = now() FROM interlock.workflow_instances r WHERE r.id = m.run_id) THEN true
                    ELSE (SELECT true FROM interlock.commands c JOIN interlock.test_gates g ON g.gate_id = c.workflow_id
                           WHERE c.workflow_id::text = its.replaces AND g.state = 'FAILED'
                             AND to_jsonb(c) - 'workflow_id' = to_jsonb(m) - 'workflow_id') END IS NOT TRUE
         LIMIT 1);
BEGIN
    IF refused IS NOT NULL THEN
        RAISE EXCEPTION 'instance % cannot get a command: it comes with the plan of its run, or from an operator, when the '
                        'instance is created', refused
            USING ERRCODE = 'restrict_violation', HINT = 'interlock run PLAN';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER made AFTER INSERT ON interlock.commands REFERENCING NEW TABLE AS made FOR EACH STATEMENT
    EXECUTE FUNCTION interlock.commands_made();

CREATE TRIGGER record_body_digests AFTER INSERT ON interlock.commands REFERENCING NEW TABLE AS made FOR EACH STATEMENT
    EXECUTE FUNCTION interlock.record_body_digests('workflow_id');

-- The gate's own column (GATE-10) shows it; nothing is run from there. A task waits for the breaker of the tool that its command names,
-- whatever its context says: nearly always both name the same, so few rows are updated. As in `record_body_digests`, nothing is joined.
CREATE FUNCTION interlock.show_commands() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    argvs jsonb := (SELECT jsonb_object_agg(m.workflow_id, m.argv) FROM made m
                     WHERE (SELECT true FROM interlock.test_gates g WHERE g.gate_id = m.workflow_id));
    tools jsonb := (SELECT jsonb_object_agg(m.workflow_id, m.tool) FROM made m
                     WHERE (SELECT t.tool IS DISTINCT FROM m.tool FROM interlock.tasks t WHERE t.task_id = m.workflow_id));
BEGIN
    UPDATE interlock.test_gates SET command = argvs->gate_id::text
     WHERE gate_id = ANY (ARRAY(SELECT jsonb_object_keys(argvs)::uuid));
    UPDATE interlock.tasks SET tool = tools->>task_id::text WHERE task_id = ANY (ARRAY(SELECT jsonb_object_keys(tools)::uuid));
    RETURN NULL;
END $$;

CREATE TRIGGER shown AFTER INSERT ON interlock.commands REFERENCING NEW TABLE AS made FOR EACH STATEMENT
    EXECUTE FUNCTION interlock.show_commands();
