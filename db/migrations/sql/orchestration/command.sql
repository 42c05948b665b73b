-- What workers carry out for a task, a gate or a patch. It is never read from a context, which any caller writes: a row
-- here comes with a submitted plan, from an operator, or with a patch that mends another, and only in the transaction in
-- which its instance is born. It never changes. Raw SQL is held to all of it.

CREATE TABLE interlock.commands (
    workflow_id         uuid         PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    run_id              uuid         NOT NULL REFERENCES interlock.plans (run_id),
    source              varchar(10)  NOT NULL CHECK (source IN ('plan', 'operator', 'mended')),
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

CREATE FUNCTION interlock.command_made() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    instance interlock.workflow_instances;
    run      uuid;
    may      boolean;
BEGIN
    SELECT * INTO instance FROM interlock.workflow_instances WHERE id = NEW.workflow_id;
    run := CASE instance.workflow_type
               WHEN 'task' THEN (SELECT run_id FROM interlock.tasks WHERE task_id = instance.id)
               WHEN 'test_gate' THEN (SELECT run_id FROM interlock.test_gates WHERE gate_id = instance.id)
               WHEN 'patch_ledger' THEN (SELECT run_id FROM interlock.patch_ledger_entries
                                          WHERE ledger_id = instance.id AND patch_id = NEW.patch_id)
           END;
    may := CASE NEW.source
               WHEN 'plan' THEN instance.workflow_type <> 'patch_ledger'
                    AND (EXISTS (SELECT FROM interlock.workflow_instances WHERE id = run AND created_at = now())
                         -- a failed gate that is run again: the very same
                         OR EXISTS (SELECT FROM interlock.commands c JOIN interlock.test_gates g ON g.gate_id = c.workflow_id
                                     WHERE c.workflow_id::text = instance.context->>'retry_of'
                                       AND instance.workflow_type = 'test_gate' AND g.state = 'FAILED'
                                       AND to_jsonb(c) - 'workflow_id' = to_jsonb(NEW) - 'workflow_id'))
               WHEN 'operator' THEN instance.workflow_type <> 'patch_ledger'
                    AND interlock.is_operator(NEW.made_by)
               WHEN 'mended' THEN instance.workflow_type = 'patch_ledger'
                    AND EXISTS (SELECT FROM interlock.patch_ledger_entries past, interlock.patch_ledger_entries mine
                                 WHERE past.ledger_id::text = instance.context->>'retry_of' AND mine.ledger_id = instance.id
                                   AND past.state IN ('rolled_back', 'quarantined', 'dropped')
                                   AND (interlock.is_operator(NEW.made_by)
                                        -- PATCH-13: by anyone only where no gate is passed by
                                        OR (past.workstream_id, past.task_id) = (mine.workstream_id, mine.task_id)
                                           AND NOT EXISTS (SELECT FROM interlock.workflow_links
                                                            WHERE source_id = past.task_id AND role = 'gates')))
           END;
    IF instance.created_at = now() AND instance.version = 0 AND run = NEW.run_id AND may THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'instance % cannot get a command: it comes with the plan of its run, or from an operator, when the '
                    'instance is created', NEW.workflow_id
        USING ERRCODE = 'restrict_violation', HINT = 'interlock run PLAN';
END $$;

CREATE TRIGGER made BEFORE INSERT ON interlock.commands FOR EACH ROW EXECUTE FUNCTION interlock.command_made();

CREATE TRIGGER record_body_digest AFTER INSERT ON interlock.commands FOR EACH ROW
    EXECUTE FUNCTION interlock.record_body_digest('workflow_id');

-- The gate's own column (GATE-10) shows it; nothing is run from there. A task waits for the breaker of what it runs, whatever
-- its context says.
CREATE FUNCTION interlock.show_command() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE interlock.test_gates SET command = to_jsonb(NEW.argv) WHERE gate_id = NEW.workflow_id;
    UPDATE interlock.tasks SET tool = NEW.tool WHERE task_id = NEW.workflow_id AND tool IS DISTINCT FROM NEW.tool;
    RETURN NULL;
END $$;

CREATE TRIGGER shown AFTER INSERT ON interlock.commands FOR EACH ROW EXECUTE FUNCTION interlock.show_command();
