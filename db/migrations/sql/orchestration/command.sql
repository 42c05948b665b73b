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

-- One question after the other: a single expression would prepare all of them for every row.
CREATE FUNCTION interlock.command_made() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    type     varchar;
    replaces text;
    fresh    boolean;
    run      uuid;
    may      boolean := false;
BEGIN
    SELECT workflow_type, context->>'retry_of', created_at = now() AND version = 0 INTO type, replaces, fresh
      FROM interlock.workflow_instances WHERE id = NEW.workflow_id;
    IF type = 'task' THEN
        SELECT run_id INTO run FROM interlock.tasks WHERE task_id = NEW.workflow_id;
    ELSIF type = 'test_gate' THEN
        SELECT run_id INTO run FROM interlock.test_gates WHERE gate_id = NEW.workflow_id;
    END IF;
    IF NEW.source = 'operator' THEN
        may := interlock.is_operator(NEW.made_by);
    ELSE
        may := EXISTS (SELECT FROM interlock.workflow_instances WHERE id = run AND created_at = now());
        IF NOT may AND type = 'test_gate' THEN  -- a failed gate that is run again: the very same
            may := EXISTS (SELECT FROM interlock.commands c JOIN interlock.test_gates g ON g.gate_id = c.workflow_id
                            WHERE c.workflow_id::text = replaces AND g.state = 'FAILED'
                              AND to_jsonb(c) - 'workflow_id' = to_jsonb(NEW) - 'workflow_id');
        END IF;
    END IF;
    IF fresh AND run = NEW.run_id AND may THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'instance % cannot get a command: it comes with the plan of its run, or from an operator, when the '
                    'instance is created', NEW.workflow_id
        USING ERRCODE = 'restrict_violation', HINT = 'interlock run PLAN';
END $$;

CREATE TRIGGER made BEFORE INSERT ON interlock.commands FOR EACH ROW EXECUTE FUNCTION interlock.command_made();

CREATE TRIGGER record_body_digests AFTER INSERT ON interlock.commands REFERENCING NEW TABLE AS made FOR EACH STATEMENT
    EXECUTE FUNCTION interlock.record_body_digests('workflow_id');

-- The gate's own column (GATE-10) shows it; nothing is run from there. A task waits for the breaker of what it runs, whatever
-- its context says.
CREATE FUNCTION interlock.show_commands() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE interlock.test_gates SET command = to_jsonb(m.argv) FROM made m WHERE gate_id = m.workflow_id;
    UPDATE interlock.tasks t SET tool = m.tool FROM made m WHERE t.task_id = m.workflow_id AND t.tool IS DISTINCT FROM m.tool;
    RETURN NULL;
END $$;

CREATE TRIGGER shown AFTER INSERT ON interlock.commands REFERENCING NEW TABLE AS made FOR EACH STATEMENT
    EXECUTE FUNCTION interlock.show_commands();
