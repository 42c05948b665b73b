-- Budgets and brakes (docs/spec/brake.md): how much an actor, a run or a project may use, and what holds whoever used it up. A row of
-- `budgets` follows its budget's events, and one of `brakes` is there as long as its brake is on.
CREATE TABLE interlock.budgets (
    budget_id   uuid             PRIMARY KEY,
    project     varchar(100)     NOT NULL,
    kind        varchar(10)      NOT NULL CHECK (kind IN ('actor', 'run', 'project')),
    name        varchar(100)     NOT NULL,  -- a run's is its UUID; `x*`: each name that begins with `x`, counted by itself
    resource    varchar(10)      NOT NULL CHECK (resource IN ('triggers', 'claims', 'tokens', 'usd')),
    most        numeric          NOT NULL CHECK (most > 0),
    per_seconds double precision CHECK (per_seconds > 0),  -- NULL: for good
    uses        bigint           NOT NULL DEFAULT 0,  -- who counts writes it: a transaction that sees older counts is not serializable
    UNIQUE (project, kind, name, resource),
    CHECK (kind <> 'project' OR name = project)
);

-- How much was used of a budget, by the name that it counts, in each hundredth of its period (`slot`).
CREATE TABLE interlock.budget_uses (
    budget_id uuid         NOT NULL,
    name      varchar(100) NOT NULL,
    slot      bigint       NOT NULL,
    amount    numeric      NOT NULL,
    PRIMARY KEY (budget_id, name, slot)
);

CREATE TABLE interlock.brakes (
    brake_id  uuid         PRIMARY KEY,
    project   varchar(100) NOT NULL,
    kind      varchar(10)  NOT NULL CHECK (kind IN ('actor', 'run', 'project', 'instance')),
    name      varchar(100) NOT NULL,  -- a run's and an instance's is its UUID
    entity_id varchar(100) NOT NULL,
    budget_id uuid,
    reason    text         NOT NULL,
    since     timestamptz  NOT NULL
);
CREATE INDEX brakes_name ON interlock.brakes (project, kind, name);

-- Since when the moves of an instance count whose brake was released: what it did before is forgiven (BRAKE-9).
CREATE TABLE interlock.bounces_forgiven (
    workflow_id uuid        PRIMARY KEY,
    forgiven_at timestamptz NOT NULL
);

-- The row of a budget that is in force, and of a brake that is on: the terms in its instance's context.
CREATE FUNCTION interlock.budget_of(i interlock.workflow_instances) RETURNS interlock.budgets LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT i.id, i.project, i.context->>'kind', i.context->>'name', i.context->>'resource', (i.context->>'most')::numeric,
           (i.context->>'per_seconds')::double precision, 0::bigint
$$;

CREATE FUNCTION interlock.brake_of(i interlock.workflow_instances) RETURNS interlock.brakes LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT i.id, i.project, i.context->>'kind', i.context->>'name', i.entity_id, (i.context->>'budget')::uuid, i.context->>'reason',
           i.created_at
$$;

CREATE FUNCTION interlock.born_brake(new interlock.workflow_instances) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO interlock.brakes SELECT b.* FROM interlock.brake_of(new) b;
END $$;

CREATE FUNCTION interlock.moved_budget(new interlock.workflow_transitions) RETURNS void LANGUAGE sql AS $$
    INSERT INTO interlock.budgets
    SELECT b.* FROM interlock.workflow_instances i, interlock.budget_of(i) b WHERE i.id = new.workflow_id AND new.to_state = 'in_force';
    DELETE FROM interlock.budgets WHERE budget_id = new.workflow_id AND new.to_state <> 'in_force';
    DELETE FROM interlock.budget_uses WHERE budget_id = new.workflow_id AND new.to_state <> 'in_force'
$$;

CREATE TRIGGER budget_in_history BEFORE INSERT OR DELETE OR UPDATE OF budget_id, project, kind, name, resource, most, per_seconds
    ON interlock.budgets FOR EACH ROW EXECUTE FUNCTION interlock.terms_in_history('budget', 'budget_id');

-- BRAKE-1: a brake's row, too, is what its instance's history says.
CREATE FUNCTION interlock.brake_in_history() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    its      CONSTANT interlock.brakes := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    released CONSTANT boolean := EXISTS (SELECT FROM interlock.workflow_transitions t
                                          WHERE t.workflow_id = its.brake_id AND t.to_state = 'released');
BEGIN
    IF released <> (TG_OP = 'DELETE')
       OR NOT EXISTS (SELECT FROM interlock.workflow_instances i
                       WHERE i.id = its.brake_id AND i.workflow_type = 'brake' AND interlock.brake_of(i) IS NOT DISTINCT FROM its) THEN
        RAISE EXCEPTION 'the brake % of project % is not what its history says', its.entity_id, its.project
            USING ERRCODE = 'check_violation', HINT = 'Release it instead: interlock brake release NAME --reason WHY';
    END IF;
    RETURN its;
END $$;

CREATE TRIGGER brake_in_history BEFORE INSERT OR UPDATE OR DELETE ON interlock.brakes FOR EACH ROW
    EXECUTE FUNCTION interlock.brake_in_history();

-- Whether there is any budget or brake. `accept` asks the same in a query that it makes anyway.
CREATE FUNCTION interlock.any_budget_or_brake() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM interlock.budgets) OR EXISTS (SELECT FROM interlock.brakes);
END $$;

-- As which name a budget counts what this actor does, in this run; NULL: it does not.
CREATE FUNCTION interlock.budgeted_as(b interlock.budgets, actor text, run text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    named CONSTANT text := CASE b.kind WHEN 'project' THEN b.name WHEN 'run' THEN run ELSE actor END;
BEGIN
    RETURN CASE WHEN named = b.name OR right(b.name, 1) = '*' AND starts_with(named, left(b.name, -1)) THEN named END;
END $$;

-- The hundredth of the period that an instant is in.
CREATE FUNCTION interlock.budget_slot(b interlock.budgets, at timestamptz) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE WHEN b.per_seconds IS NULL THEN 0 ELSE floor(extract(epoch FROM at) * 100 / b.per_seconds) END;
END $$;

-- What a brake says that a budget puts on: the figures, and in words; NULL: the budget is not used up. What was used in the period counts,
-- and what was in at most a hundredth of it before.
CREATE FUNCTION interlock.used_up(b interlock.budgets, named text, at timestamptz) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    used CONSTANT numeric := (SELECT COALESCE(sum(u.amount), 0) FROM interlock.budget_uses u
                               WHERE (u.budget_id, u.name) = (b.budget_id, named)
                                 AND (b.per_seconds IS NULL OR u.slot > interlock.budget_slot(b, at) - 101));
BEGIN
    RETURN CASE WHEN used >= b.most THEN jsonb_strip_nulls(jsonb_build_object(
        'kind', b.kind, 'name', named, 'budget', b.budget_id, 'resource', b.resource, 'used', used, 'most', b.most,
        'per_seconds', b.per_seconds, 'as_of', interlock.micros(at),
        'reason', format('%s %s has used %s %s of %s%s', b.kind,
                         COALESCE(CASE b.kind WHEN 'run' THEN (SELECT i.entity_id FROM interlock.workflow_instances i
                                                                WHERE i.id::text = named) END, named),
                         used, b.resource, b.most, COALESCE(' in ' || b.per_seconds || ' s', '')))) END;
END $$;

-- How often an instance went from one state to another by what anyone may fire, in so many seconds, and since its brake was last released.
-- Only its newest events are read: of a way back and forth of at most ten states, they have more than `most` rounds.
CREATE FUNCTION interlock.bounced(instance uuid, source text, dest text, within_seconds double precision, most integer) RETURNS bigint
    LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT count(*) FROM interlock.workflow_transitions t JOIN interlock.workflow_instances i ON i.id = t.workflow_id
             WHERE t.workflow_id = instance AND t.seq > i.version - 10 * (most + 1) AND (t.from_state, t.to_state) = (source, dest)
               AND t.authority = 'anyone' AND t.created_at > GREATEST(
                       now() - make_interval(secs => within_seconds),
                       (SELECT f.forgiven_at FROM interlock.bounces_forgiven f WHERE f.workflow_id = instance)));
END $$;

-- The instant whose figures a budget's brake has: just now.
CREATE FUNCTION interlock.as_of(terms jsonb) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
DECLARE
    at CONSTANT timestamptz := timestamptz 'epoch' + (terms->>'as_of')::bigint * interval '1 microsecond';
BEGIN
    RETURN CASE WHEN at BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp() THEN at END;
END $$;

-- A brake is put on because a budget is used up, an instance goes back and forth, or an operator says so: for no other reason, whoever
-- writes it, and with these figures.
CREATE FUNCTION interlock.has_cause(i interlock.workflow_instances) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    c CONSTANT jsonb := i.context;
BEGIN
    RETURN CASE
        WHEN c ? 'budget' THEN EXISTS (SELECT FROM interlock.budgets b WHERE b.budget_id = (c->>'budget')::uuid AND b.project = i.project
                                          AND interlock.used_up(b, c->>'name', interlock.as_of(c)) = c)
        WHEN NOT interlock.is_engine() THEN false
        WHEN c ? 'times' THEN c->>'kind' = 'instance' AND (c->>'times')::bigint > (c->>'most')::integer
             AND interlock.bounced((c->>'name')::uuid, c->>'from', c->>'to', (c->>'per_seconds')::double precision, (c->>'most')::integer)
                 >= (c->>'times')::bigint
        ELSE interlock.is_operator(i.created_by) AND interlock.is_reason(c->>'reason') END;
END $$;

-- The brake that holds what this actor asks for, of this run and instance; NULL: none. It is not released before the caller's commit, so
-- whoever releases it finds all that it held.
CREATE FUNCTION interlock.braked_by(its_project text, actor text, run text, instance uuid) RETURNS interlock.brakes LANGUAGE plpgsql AS $$
DECLARE
    found interlock.brakes;
BEGIN
    SELECT b.* INTO found FROM interlock.brakes b
     WHERE b.project = its_project
       AND (b.kind, b.name) IN (('project', its_project), ('actor', actor), ('run', run), ('instance', instance::text))
     ORDER BY b.since, b.brake_id LIMIT 1 FOR SHARE;
    RETURN found;
END $$;

-- Put on the brake of a budget that is used up, unless it is on; its id. NULL: there is room.
CREATE FUNCTION interlock.put_on(b interlock.budgets, named text) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    made  uuid := (SELECT brake_id FROM interlock.brakes WHERE (budget_id, name) = (b.budget_id, named));
    terms CONSTANT jsonb := interlock.used_up(b, named, clock_timestamp());
BEGIN
    IF made IS NULL AND terms IS NOT NULL THEN
        made := gen_random_uuid();
        INSERT INTO interlock.workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project, context, created_by)
        SELECT made, d.type, d.version, d.initial_state, b.kind || '-' || left(made::text, 8), b.project, terms, 'budget'
          FROM interlock.workflow_definitions d
         WHERE d.type = 'brake' ORDER BY string_to_array(d.version, '.')::integer[] DESC LIMIT 1;
    END IF;
    RETURN made;
END $$;

-- The budgets of a project, locked in one order until the caller's commit: what is counted then is newer than whatever the last one did.
CREATE FUNCTION interlock.lock_budgets(its_project text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM interlock.budgets WHERE project = its_project ORDER BY budget_id FOR NO KEY UPDATE;
END $$;

-- Put a brake on for each used-up budget that counts this; the id of one. NULL: there is room under each.
CREATE FUNCTION interlock.over_budget(its_project text, actor text, run text, wanted text) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    b    interlock.budgets;
    made uuid;
BEGIN
    FOR b IN SELECT * FROM interlock.budgets c WHERE c.project = its_project AND c.resource = wanted ORDER BY c.budget_id LOOP
        made := COALESCE(interlock.put_on(b, interlock.budgeted_as(b, actor, run)), made);  -- each that is used up brakes
    END LOOP;
    RETURN made;
END $$;

-- Count what was used under each budget that counts it.
CREATE FUNCTION interlock.use_budgets(its_project text, actor text, run text, used text, many numeric) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH counting AS (
        UPDATE interlock.budgets b SET uses = uses + 1
         WHERE b.project = its_project AND b.resource = used AND interlock.budgeted_as(b, actor, run) IS NOT NULL
        RETURNING b.*, interlock.budgeted_as(b, actor, run) AS named, interlock.budget_slot(b, clock_timestamp()) AS slot
    ), forgotten AS (
        DELETE FROM interlock.budget_uses u USING counting c
         WHERE (u.budget_id, u.name) = (c.budget_id, c.named) AND u.slot <= c.slot - 101 AND c.per_seconds IS NOT NULL
    )
    INSERT INTO interlock.budget_uses AS u (budget_id, name, slot, amount)
    SELECT c.budget_id, c.named, c.slot, many FROM counting c
        ON CONFLICT (budget_id, name, slot) DO UPDATE SET amount = u.amount + EXCLUDED.amount;
END $$;

-- Whether it says how much was spent, and how much of a resource.
CREATE FUNCTION interlock.is_spent(said jsonb) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN jsonb_typeof(said) = 'object' AND said - ARRAY['tokens', 'usd'] = '{}' AND said <> '{}'
           AND COALESCE(jsonb_typeof(said->'tokens') = 'number' AND said->>'tokens' ~ '^[0-9]{1,15}$', NOT said ? 'tokens')
           AND COALESCE(jsonb_typeof(said->'usd') = 'number' AND (said->>'usd')::numeric BETWEEN 0 AND 1000000000, NOT said ? 'usd');
END $$;

-- What no brake holds (BRAKE-5): what the machinery, effects, the holders of claims and operators do, and what ends something that
-- Interlock carries out.
CREATE FUNCTION interlock.never_braked(r interlock.trigger_requests, i interlock.workflow_instances) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN r.authority NOT IN ('anyone', 'decider')
           OR interlock.is_operator(r.triggered_by) AND (r.triggered_by = session_user OR interlock.is_engine())
           OR i.workflow_type IN (SELECT type FROM interlock.kinds())
              AND NOT EXISTS (SELECT FROM interlock.definition_transitions t
                                JOIN interlock.definition_states s ON (s.type, s.version, s.state) = (t.type, t.version, t.dest)
                               WHERE (t.type, t.version, t.trigger) = (i.workflow_type, i.definition_version, r.trigger) AND NOT s.terminal);
END $$;

-- The run that an instance is, or belongs to.
CREATE FUNCTION interlock.run_of(i interlock.workflow_instances) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE i.workflow_type
        WHEN 'run' THEN i.id::text
        WHEN 'task' THEN (SELECT t.run_id::text FROM interlock.tasks t WHERE t.task_id = i.id)
        ELSE i.context->>'run_id' END;
END $$;

-- What a request's result says while a brake holds it.
CREATE FUNCTION interlock.says_held(b interlock.brakes) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN jsonb_build_object('code', 'braked', 'brake', 'brake/' || b.entity_id, 'brake_id', b.brake_id,
        'message', format('brake/%1$s holds it: %2$s. It goes on when an operator releases that: '
                          'interlock brake release %1$s --project %3$s --reason WHY',
                          b.entity_id, b.reason, quote_literal(b.project)));
END $$;

-- As a request is accepted: it is held by the brake that is on, or that it puts on, or counted; and what it says was spent is counted. A
-- repetition, which conflicts with what was accepted, is neither.
CREATE FUNCTION interlock.budgeted(INOUT r interlock.trigger_requests) LANGUAGE plpgsql AS $$
DECLARE
    its   interlock.workflow_instances;
    brake interlock.brakes;
    made  uuid;
    run   text;
    said  record;
BEGIN
    IF r.authority IN ('machinery', 'effect') AND NOT r.metadata ? 'spent' THEN
        RETURN;
    END IF;
    SELECT i.* INTO its FROM interlock.workflow_instances i WHERE i.id = r.workflow_id;
    run := interlock.run_of(its);
    PERFORM interlock.lock_budgets(its.project);
    IF its.id IS NULL OR EXISTS (SELECT FROM interlock.trigger_requests known WHERE known.request_id = r.request_id) THEN
        RETURN;
    END IF;
    IF NOT interlock.never_braked(r, its) THEN
        brake := interlock.braked_by(its.project, r.triggered_by, run, its.id);
        IF brake.brake_id IS NULL THEN
            made := interlock.over_budget(its.project, r.triggered_by, run, 'triggers');
            SELECT b.* INTO brake FROM interlock.brakes b WHERE b.brake_id = made;
        END IF;
        IF brake.brake_id IS NULL THEN
            PERFORM interlock.use_budgets(its.project, r.triggered_by, run, 'triggers', 1);
        ELSE
            r.status := 'waiting';
            r.held_by := brake.brake_id;
            r.result := interlock.says_held(brake);
        END IF;
    END IF;
    FOR said IN SELECT key, value::numeric FROM jsonb_each_text(r.metadata->'spent') LOOP
        PERFORM interlock.use_budgets(its.project, r.triggered_by, run, said.key, said.value);
        PERFORM interlock.over_budget(its.project, r.triggered_by, run, said.key);
    END LOOP;
END $$;

-- Whether a task of a run may be claimed by a worker: no brake is on, and no budget of claims is used up, which puts one on.
CREATE FUNCTION interlock.may_claim(its_project text, actor text, run uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM interlock.lock_budgets(its_project);
    RETURN (interlock.braked_by(its_project, actor, run::text, NULL)).brake_id IS NULL
           AND interlock.over_budget(its_project, actor, run::text, 'claims') IS NULL;
END $$;

-- A brake is released: what it used up is forgiven, and what it held goes on in the order accepted, or is held by another that is on.
-- Not now(): what was accepted while this transaction waited for the budgets is due, too.
CREATE FUNCTION interlock.moved_brake(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    gone interlock.brakes;
BEGIN
    IF new.to_state <> 'released' THEN
        RETURN;
    END IF;
    PERFORM interlock.lock_budgets(b.project) FROM interlock.brakes b WHERE b.brake_id = new.workflow_id;
    DELETE FROM interlock.brakes b WHERE b.brake_id = new.workflow_id RETURNING b.* INTO gone;
    DELETE FROM interlock.budget_uses u WHERE (u.budget_id, u.name) = (gone.budget_id, gone.name);
    IF gone.kind = 'instance' THEN
        INSERT INTO interlock.bounces_forgiven VALUES (gone.name::uuid, new.created_at)
            ON CONFLICT (workflow_id) DO UPDATE SET forgiven_at = EXCLUDED.forgiven_at;
    END IF;
    WITH held AS MATERIALIZED (
        SELECT r.seq, interlock.braked_by(i.project, r.triggered_by, interlock.run_of(i), i.id) AS by_another
          FROM interlock.trigger_requests r JOIN interlock.workflow_instances i ON i.id = r.workflow_id
         WHERE r.held_by = gone.brake_id AND r.status = 'waiting'
    )
    UPDATE interlock.trigger_requests r
       SET status = CASE WHEN (h.by_another).brake_id IS NOT NULL THEN 'waiting' WHEN r.not_before > clock_timestamp() THEN 'scheduled' ELSE 'pending' END,
           held_by = COALESCE((h.by_another).brake_id, r.held_by),
           result = CASE WHEN (h.by_another).brake_id IS NOT NULL THEN interlock.says_held(h.by_another) END
      FROM held h WHERE r.seq = h.seq;
END $$;

-- What a brake holds is let go by its release only. `request_is_sound` asks this; STRICT, because an insertion has no OLD: they are not called.
CREATE FUNCTION interlock.is_braked(brake uuid) RETURNS boolean LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RETURN EXISTS (SELECT FROM interlock.brakes b WHERE b.brake_id = brake);
END $$;

CREATE FUNCTION interlock.was_brake(brake uuid) RETURNS boolean LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
    RETURN EXISTS (SELECT FROM interlock.workflow_transitions t
                    WHERE t.workflow_id = brake AND t.workflow_type = 'brake' AND t.to_state = 'released');
END $$;
