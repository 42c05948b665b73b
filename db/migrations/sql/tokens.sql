-- API tokens (docs/spec/token.md). A row is what its instance's history says, as in `operators`; its last use is no history, and stands
-- beside it.

CREATE TABLE interlock.api_tokens (
    token_id      uuid         PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    state         varchar(20)  NOT NULL CHECK (state IN ('proposed', 'active', 'revoked', 'expired')),
    name          varchar(100) NOT NULL CHECK (name <> ''),  -- in whose name its requests are made
    role          varchar(10)  NOT NULL CHECK (role IN ('read-only', 'agent', 'operator', 'admin')),
    projects      text[]       CHECK (cardinality(projects) > 0),  -- NULL: all
    secret_sha256 bytea        NOT NULL UNIQUE CHECK (length(secret_sha256) = 32),
    issued_by     varchar(100) NOT NULL CHECK (issued_by <> ''),
    issued_at     timestamptz,
    reason        text,
    expires_at    timestamptz,  -- from then on it gives no right, whatever its state
    ended_by      varchar(100),
    ended_at      timestamptz,
    CHECK ((state = 'proposed') = (issued_at IS NULL)),
    CHECK ((state IN ('revoked', 'expired')) = (ended_at IS NOT NULL)),
    CHECK ((state = 'revoked') = (ended_by IS NOT NULL))
);
CREATE INDEX api_tokens_name ON interlock.api_tokens (name) WHERE state = 'active';

-- When each token was last used, to the minute: more would be a write for each request.
CREATE TABLE interlock.api_token_uses (
    token_id     uuid        PRIMARY KEY REFERENCES interlock.api_tokens (token_id),
    last_used_at timestamptz NOT NULL
);

-- A token's row, from its instance's birth and history.
CREATE FUNCTION interlock.recorded_token(id uuid) RETURNS interlock.api_tokens LANGUAGE sql STABLE AS $$
    SELECT i.id, COALESCE(last.to_state, 'proposed'), i.context->>'name', i.context->>'role',
           CASE WHEN i.context ? 'projects' THEN interlock.texts(i.context->'projects') END,
           decode(i.context->>'secret_sha256', 'hex'), COALESCE(first.triggered_by, i.created_by), first.created_at,
           first.metadata->>'reason', (i.context->>'expires_at')::timestamptz,
           CASE WHEN last.to_state = 'revoked' THEN last.triggered_by END,
           CASE WHEN last.to_state IN ('revoked', 'expired') THEN last.created_at END
      FROM interlock.workflow_instances i
      LEFT JOIN interlock.workflow_transitions first ON first.workflow_id = i.id AND first.seq = 1
     CROSS JOIN interlock.last_event(i.id) last
     WHERE i.id = recorded_token.id AND i.workflow_type = 'api_token'
$$;

-- As `grant_refused`. Who issues is an operator: that is the transition's own authority.
CREATE FUNCTION interlock.token_refused(its interlock.api_tokens, event interlock.workflow_transitions) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE
        WHEN event.trigger IN ('issue', 'revoke') AND COALESCE(event.metadata->>'reason', '') = '' THEN 'no reason is given'
        WHEN event.trigger = 'issue' AND its.expires_at <= event.created_at THEN 'it would have expired'
        WHEN event.trigger = 'issue' AND (its.role IN ('operator', 'admin')) <> interlock.is_operator(its.name) THEN CASE
            WHEN interlock.is_operator(its.name) THEN format('%s is an operator, whose name no token of the role %s has', its.name, its.role)
            ELSE format('%s is not an operator, as the role %s needs', its.name, its.role) END
        WHEN event.trigger = 'expire' AND (its.expires_at <= event.created_at) IS NOT TRUE THEN 'its end has not come'
    END;
END $$;

-- Grants, deprecations and tokens: their rows are what their histories say ---------------------------------------------------

-- A row that differs from its history is refused; and what PostgreSQL alone can judge of a move is judged here, for everyone.
-- By the constraint's name, `judged`, the engine knows that the request is to be rejected: nothing is broken. Arguments: the row's key,
-- and the commands that help.
CREATE FUNCTION interlock.judged() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    its_key  CONSTANT uuid := to_jsonb(NEW)->>TG_ARGV[0];
    event    CONSTANT interlock.workflow_transitions := interlock.last_event(its_key);
    recorded jsonb;
    named    text;
    refused  text;
BEGIN
    CASE TG_TABLE_NAME
        WHEN 'operators' THEN
            recorded := to_jsonb(interlock.recorded_grant(its_key));
            refused := interlock.grant_refused(NEW, event);
            named := 'operator ' || NEW.name;
        WHEN 'deprecations' THEN
            recorded := to_jsonb(interlock.recorded_deprecation(its_key));
            refused := interlock.deprecation_refused(NEW, event);
            named := concat_ws(' ', NEW.type, NEW.version, CASE WHEN NEW.kind <> 'version' THEN NEW.kind END, NULLIF(NEW.name, ''));
        WHEN 'api_tokens' THEN
            recorded := to_jsonb(interlock.recorded_token(its_key));
            refused := interlock.token_refused(NEW, event);
            named := 'a token of ' || NEW.name;
    END CASE;
    IF to_jsonb(NEW) IS DISTINCT FROM recorded THEN
        RAISE EXCEPTION 'the row % of % would differ from its history', its_key, TG_TABLE_NAME
            USING ERRCODE = 'restrict_violation', HINT = TG_ARGV[1];
    ELSIF refused IS NOT NULL THEN
        RAISE EXCEPTION '% of % by % is refused: %', event.trigger, named, event.triggered_by, refused
            USING ERRCODE = 'check_violation', CONSTRAINT = 'judged', HINT = TG_ARGV[1];
    END IF;
    RETURN NEW;
END $$;

DO $$
DECLARE
    kind record;
BEGIN
    FOR kind IN
        SELECT v.*, (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a
                      WHERE a.attrelid = format('interlock.%I', v.typed)::regclass AND a.attnum > 0) AS columns
          FROM (VALUES
              ('operator_grant', 'operators', 'grant_id', 'recorded_grant',
               'interlock operator list; interlock operator grant NAME; interlock operator revoke NAME'),
              ('deprecation', 'deprecations', 'deprecation_id', 'recorded_deprecation',
               'interlock definitions deprecated; interlock definitions deprecate TYPE VERSION'),
              ('api_token', 'api_tokens', 'token_id', 'recorded_token',
               'interlock token list; interlock token create; interlock token revoke NAME; interlock operator list')
          ) AS v (type, typed, key, recorded, hint)
    LOOP
        EXECUTE format('CREATE FUNCTION interlock.born_%s(new interlock.workflow_instances) RETURNS void LANGUAGE sql AS $body$
            INSERT INTO interlock.%I SELECT * FROM interlock.%I(new.id)
            $body$', kind.type, kind.typed, kind.recorded);
        EXECUTE format('CREATE FUNCTION interlock.moved_%s(new interlock.workflow_transitions) RETURNS void LANGUAGE sql AS $body$
            UPDATE interlock.%I SET (%s) = (SELECT * FROM interlock.%I(new.workflow_id)) WHERE %I = new.workflow_id
            $body$', kind.type, kind.typed, kind.columns, kind.recorded, kind.key);
        EXECUTE format('CREATE TRIGGER judged BEFORE INSERT OR UPDATE ON interlock.%I FOR EACH ROW
            EXECUTE FUNCTION interlock.judged(%L, %L)', kind.typed, kind.key, kind.hint);
    END LOOP;
END $$;

-- What requests and births are held to that are made with a token (AUTHORITY-16) ---------------------------------------------

-- The token by which something was asked for, as its proof ends; NULL: by none.
CREATE FUNCTION interlock.token_of(proof text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN substring(proof FROM '(?:^| )token:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$')::uuid;

-- What proves the right itself; NULL: nothing beside the token.
CREATE FUNCTION interlock.without_token(proof text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN NULLIF(regexp_replace(proof, '(?:^| )token:.*$', ''), '');

-- Why nothing is asked for by this token in this name; NULL: it may be. Only logins of the engine say by which token they were asked: they
-- have seen its secret, and here is its id.
CREATE FUNCTION interlock.not_by_token(token interlock.api_tokens, who text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE
        WHEN NOT interlock.is_engine() THEN format('the login %s is no member of interlock_engine', session_user)
        WHEN token.token_id IS NULL THEN 'there is no such token'
        WHEN token.state <> 'active' THEN format('the token %s is %s', token.token_id, token.state)
        WHEN token.expires_at <= clock_timestamp() THEN format('the token %s is expired', token.token_id)
        WHEN token.name <> who THEN format('the token %s is of %s', token.token_id, token.name)
        WHEN token.role = 'read-only' THEN format('the token %s is read-only', token.token_id) END;
END $$;

-- Why a token is not good for what is of a project; NULL: it is. What gives power everywhere needs an admin's for all projects, but for
-- a token that is itself good for no other projects than the admin's.
CREATE FUNCTION interlock.not_covered(token interlock.api_tokens, of_project text, type text, id uuid) RETURNS text LANGUAGE sql STABLE
    RETURN CASE
        WHEN of_project = 'interlock:governance' AND token.role <> 'admin' THEN format('the token %s is no admin''s', token.token_id)
        WHEN token.projects IS NULL OR of_project = ANY (token.projects) AND of_project <> 'interlock:governance' THEN NULL
        WHEN type = 'api_token' AND EXISTS (SELECT FROM interlock.api_tokens other
                                             WHERE other.token_id = not_covered.id AND other.projects <@ token.projects) THEN NULL
        ELSE format('the token %s is of other projects', token.token_id) END;

-- Why a token is not one of the same name, which may revoke it; NULL: it is.
CREATE FUNCTION interlock.not_its_own(token interlock.api_tokens, other uuid) RETURNS text LANGUAGE sql STABLE
    RETURN (SELECT CASE WHEN a.name <> token.name THEN format('the token %s is of another name', token.token_id) END
              FROM interlock.api_tokens a WHERE a.token_id = other);

-- Who supervises a supervised worker or a job: who created it, or the job that has it (SUPERVISED-7).
CREATE FUNCTION interlock.supervisors(subject uuid) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT i.created_by::text FROM interlock.workflow_instances i WHERE i.id = subject
    UNION
    SELECT i.created_by::text FROM interlock.workflow_links l JOIN interlock.jobs j ON j.id = l.source_id
      JOIN interlock.workflow_instances i ON i.id = j.id
     WHERE l.target_id = subject AND l.role = 'workers' AND j.completed_at IS NULL;
END $$;

-- Why a token does not fire what is its supervisor's to fire on a supervised worker or a job; NULL: it does.
CREATE FUNCTION interlock.not_supervising(token interlock.api_tokens, subject uuid) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE
        WHEN token.role NOT IN ('operator', 'admin') THEN format('a token of the role %s is no supervisor', token.role)
        WHEN interlock.is_operator(token.name) OR token.name IN (SELECT interlock.supervisors(subject)) THEN NULL
        ELSE format('%s is neither its supervisor nor an operator', token.name) END;
END $$;

-- Refuse an instance that its token may not create (TOKEN-11): nothing that a client's login may not create either, unless it is an
-- operator's; but for the worker that the token's holder is (TOKEN-12).
CREATE FUNCTION interlock.born_by_token(new interlock.workflow_instances) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    token   interlock.api_tokens;
    lacking text;
BEGIN
    SELECT * INTO token FROM interlock.api_tokens WHERE token_id = interlock.token_of(new.born_proof);
    IF new.workflow_type = 'uet_worker' THEN  -- one at a time, so that two do not begin to live at once
        PERFORM pg_advisory_xact_lock(hashtextextended(format('interlock.token_agent %s %s', new.project, token.name), 0));
    END IF;
    lacking := COALESCE(
        CASE WHEN new.born_proof !~ '^token:[0-9a-f-]{36}$' THEN format('%s is no token', new.born_proof) END,
        interlock.not_by_token(token, new.created_by),
        CASE WHEN new.workflow_type = 'uet_worker' AND split_part(new.entity_id, '#', 1) <> token.name
                 THEN format('an agent has its token''s name, %s', token.name)
             WHEN new.workflow_type = 'uet_worker' AND new.context->>'worker_type' <> 'agent'  -- a task's affinity names types, too
                 THEN 'an agent is of the type agent'
             WHEN new.workflow_type = 'uet_worker'  -- the same name again is the same worker, or refused as taken
                 THEN COALESCE(interlock.not_covered(token, new.project, new.workflow_type, new.id),
                               (SELECT format('its agent %s lives', w.name) FROM interlock.workers w
                                 WHERE w.project = new.project AND split_part(w.name, '#', 1) = token.name
                                   AND w.name <> new.entity_id AND w.shutdown_at IS NULL LIMIT 1))
             WHEN token.role = 'agent' AND (new.workflow_type IN (SELECT interlock.of_engine_only())
                                            OR new.workflow_type = 'schedule' AND interlock.closed_to_clients(new.context->'does'))
                 THEN format('the token %s is no operator''s', token.token_id)
             WHEN new.workflow_type = 'api_token' AND token.role = 'admin'
                  AND (token.projects IS NULL OR interlock.texts(new.context->'projects') <@ token.projects AND new.context ? 'projects')
                 THEN CASE WHEN (token.expires_at < COALESCE((new.context->>'expires_at')::timestamptz, 'infinity')) IS TRUE
                               THEN format('the token %s ends before it', token.token_id) END
             ELSE interlock.not_covered(token, new.project, new.workflow_type, new.id) END);
    IF lacking IS NOT NULL THEN
        RAISE EXCEPTION '% may not create % % in project %: %', new.created_by, new.workflow_type, new.entity_id, new.project, lacking
            USING ERRCODE = 'insufficient_privilege', CONSTRAINT = 'by_token', HINT = 'interlock token list';
    END IF;
END $$;
