-- __TYPE__ __VERSION__: __SUMMARY__
-- Made by `interlock definitions export __TYPE__@__VERSION__ --format sql`. For an empty schema: psql -1 -f FILE.
--
-- fire(...) gives the next state or the refusal, settle(...) decides what waits for an approval, `due` lists the
-- deadlines that have passed (fire each with its trigger, the authority `machinery` and its at_version), and `outbox`
-- holds what the caller carries out after the commit: effects, follow-ups on linked instances, approvals to ask for.
--
-- The caller says who fires a trigger and by what authority, and which conditions hold: all of `conditions(...)`, as
-- {"name": true}. A condition that is missing does not hold. Grant EXECUTE only to those who prove what they say.

CREATE SCHEMA __SCHEMA__;

CREATE TABLE __SCHEMA__.states (
    state            text PRIMARY KEY,
    is_initial       boolean NOT NULL,
    is_terminal      boolean NOT NULL,
    deadline_trigger text,              -- fired on an instance that stays in the state for too long
    deadline_seconds double precision,  -- how long it may stay, its grace included
    deadline_key     text               -- the field of its context that says so instead
);

CREATE TABLE __SCHEMA__.moves (
    move       integer PRIMARY KEY,
    trigger    text NOT NULL,
    sources    text[] NOT NULL,
    dest       text NOT NULL REFERENCES __SCHEMA__.states,
    conditions text[] NOT NULL,  -- all of them must hold
    open_to    text[] NOT NULL,  -- the authorities that may fire it
    approval   jsonb,            -- it is held until `quorum` of `deciders` (empty: anyone but the author) approve
    severity   text NOT NULL,
    settles    text,             -- it grants or refuses the approval that the instance stands for
    effects    jsonb NOT NULL,
    follow_ups jsonb NOT NULL,
    relink     jsonb             -- the link that it changes
);

CREATE TABLE __SCHEMA__.instances (
    id          text PRIMARY KEY,
    state       text NOT NULL REFERENCES __SCHEMA__.states,
    version     integer NOT NULL DEFAULT 0,  -- the number of its moves
    context     jsonb NOT NULL,
    due_at      timestamptz,
    due_trigger text
);

CREATE TABLE __SCHEMA__.held (
    id       text NOT NULL REFERENCES __SCHEMA__.instances,
    trigger  text NOT NULL,
    version  integer NOT NULL,  -- of the instance, when the trigger was held
    fired_by text NOT NULL,
    authority text NOT NULL,
    data     jsonb NOT NULL,
    PRIMARY KEY (id, trigger, version)
);

CREATE TABLE __SCHEMA__.history (
    id         text NOT NULL REFERENCES __SCHEMA__.instances,
    seq        integer NOT NULL,
    trigger    text NOT NULL,
    from_state text NOT NULL,
    to_state   text NOT NULL,
    fired_by   text NOT NULL,
    authority  text NOT NULL,
    severity   text NOT NULL,
    data       jsonb NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (id, seq)
);

CREATE TABLE __SCHEMA__.outbox (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id       text NOT NULL REFERENCES __SCHEMA__.instances,
    version  integer NOT NULL,
    kind     text NOT NULL CHECK (kind IN ('effect', 'follow_up', 'approval')),
    body     jsonb NOT NULL
);

CREATE VIEW __SCHEMA__.due AS
    SELECT id, due_trigger AS trigger, version AS at_version, due_at
      FROM __SCHEMA__.instances WHERE due_at <= clock_timestamp();

INSERT INTO __SCHEMA__.states VALUES
__STATES__;

INSERT INTO __SCHEMA__.moves VALUES
__MOVES__;

-- History is only added to.
CREATE FUNCTION __SCHEMA__.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'history is not changed: fire a trigger instead';
END $$;
CREATE TRIGGER kept BEFORE UPDATE OR DELETE OR TRUNCATE ON __SCHEMA__.history
    FOR EACH STATEMENT EXECUTE FUNCTION __SCHEMA__.refuse_change();
ALTER TABLE __SCHEMA__.history ENABLE ALWAYS TRIGGER kept;

-- The triggers that have a move out of a state, in the order declared.
CREATE FUNCTION __SCHEMA__.legal(source text) RETURNS text[] LANGUAGE sql STABLE AS $$
    SELECT COALESCE(array_agg(trigger ORDER BY first), '{}')
      FROM (SELECT trigger, (SELECT min(move) FROM __SCHEMA__.moves a WHERE a.trigger = m.trigger) AS first
              FROM __SCHEMA__.moves m WHERE source = ANY (sources) GROUP BY trigger) AS there
$$;

-- What a caller has to look up before it fires a trigger: the conditions of its moves out of a state.
CREATE FUNCTION __SCHEMA__.conditions(source text, fired text) RETURNS SETOF text LANGUAGE sql STABLE AS $$
    SELECT DISTINCT unnest(conditions) FROM __SCHEMA__.moves WHERE trigger = fired AND source = ANY (sources)
$$;

CREATE FUNCTION __SCHEMA__.rejected(code text, source text, message text, missing text[] DEFAULT '{}')
RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object('status', 'rejected', 'code', code, 'message', message, 'state', source,
                              'missing', missing, 'legal', __SCHEMA__.legal(source))
$$;

-- Set the deadline of the state that an instance has entered; one that runs goes on while it stays there.
CREATE FUNCTION __SCHEMA__.arm(instance text, entered boolean) RETURNS void LANGUAGE sql AS $$
    UPDATE __SCHEMA__.instances i
       SET due_trigger = s.deadline_trigger,
           due_at = CASE WHEN entered OR i.due_at IS NULL THEN clock_timestamp() + make_interval(
               secs => COALESCE((i.context->>s.deadline_key)::double precision, s.deadline_seconds)) ELSE i.due_at END
      FROM __SCHEMA__.states s
     WHERE i.id = instance AND s.state = i.state
$$;

CREATE FUNCTION __SCHEMA__.create_instance(instance text, context jsonb DEFAULT '{}') RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO __SCHEMA__.instances (id, state, context)
    SELECT instance, state, create_instance.context FROM __SCHEMA__.states WHERE is_initial;
    PERFORM __SCHEMA__.arm(instance, true);
    INSERT INTO __SCHEMA__.outbox (id, version, kind, body)
    SELECT instance, 0, 'effect', body FROM jsonb_array_elements(__BIRTH_EFFECTS__) AS body;
    RETURN instance;
END $$;

-- Decide a trigger on a locked instance, and make its move. Not to be called by itself: `fire` and `settle` are.
CREATE FUNCTION __SCHEMA__.move(
    locked __SCHEMA__.instances, fired text, fired_by text, authority text, holds jsonb, data jsonb, granted boolean
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    taken   __SCHEMA__.moves;
    refused text[];
BEGIN
    IF NOT EXISTS (SELECT FROM __SCHEMA__.moves WHERE trigger = fired AND locked.state = ANY (sources)) THEN
        RETURN __SCHEMA__.rejected('no_such_transition', locked.state,
                                   format('__TYPE__ in state %s does not answer to %s', locked.state, fired));
    END IF;
    SELECT * INTO taken FROM __SCHEMA__.moves m
     WHERE trigger = fired AND locked.state = ANY (sources)
       AND NOT EXISTS (SELECT FROM unnest(m.conditions) c WHERE (holds->>c)::boolean IS NOT TRUE)
     ORDER BY move LIMIT 1;
    IF NOT FOUND THEN  -- name what the move lacks that lacks least
        SELECT array(SELECT c FROM unnest(m.conditions) WITH ORDINALITY AS u (c, n)
                      WHERE (holds->>c)::boolean IS NOT TRUE ORDER BY n) INTO refused
          FROM __SCHEMA__.moves m WHERE trigger = fired AND locked.state = ANY (sources)
         ORDER BY (SELECT count(*) FROM unnest(m.conditions) c WHERE (holds->>c)::boolean IS NOT TRUE), move LIMIT 1;
        RETURN __SCHEMA__.rejected('guard', locked.state, array_to_string(refused, '; '), refused);
    END IF;
    IF taken.approval IS NOT NULL AND NOT granted THEN
        IF EXISTS (SELECT FROM __SCHEMA__.held h WHERE (h.id, h.trigger, h.version) = (locked.id, fired, locked.version)) THEN
            RETURN __SCHEMA__.rejected('already_held', locked.state, format('%s already waits for an approval', fired));
        END IF;
        INSERT INTO __SCHEMA__.held VALUES (locked.id, fired, locked.version, fired_by, authority, data);
        INSERT INTO __SCHEMA__.outbox (id, version, kind, body)
        VALUES (locked.id, locked.version, 'approval', taken.approval || jsonb_build_object('trigger', fired, 'by', fired_by));
        RETURN jsonb_build_object('status', 'waiting', 'code', 'approval', 'state', locked.state, 'version', locked.version);
    END IF;
    UPDATE __SCHEMA__.instances SET state = taken.dest, version = version + 1 WHERE id = locked.id;
    PERFORM __SCHEMA__.arm(locked.id, taken.dest <> locked.state);
    INSERT INTO __SCHEMA__.history (id, seq, trigger, from_state, to_state, fired_by, authority, severity, data)
    VALUES (locked.id, locked.version + 1, fired, locked.state, taken.dest, fired_by, authority, taken.severity, data);
    INSERT INTO __SCHEMA__.outbox (id, version, kind, body)
    SELECT locked.id, locked.version + 1, 'effect', body FROM jsonb_array_elements(taken.effects) AS body
    UNION ALL
    SELECT locked.id, locked.version + 1, 'follow_up', body FROM jsonb_array_elements(taken.follow_ups) AS body;
    RETURN jsonb_strip_nulls(jsonb_build_object('status', 'applied', 'from', locked.state, 'to', taken.dest,
                                                'seq', locked.version + 1, 'settles', taken.settles));
END $$;
REVOKE ALL ON FUNCTION __SCHEMA__.move FROM PUBLIC;

-- Fire a trigger; returns {"status": "applied" | "waiting" | "rejected" | "superseded", …}.
CREATE FUNCTION __SCHEMA__.fire(
    instance text, fired text, fired_by text, authority text DEFAULT 'anyone', holds jsonb DEFAULT '{}',
    data jsonb DEFAULT '{}', at_version integer DEFAULT NULL
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    locked __SCHEMA__.instances;
BEGIN
    SELECT * INTO locked FROM __SCHEMA__.instances WHERE id = instance FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no instance %: create it first', instance;
    ELSIF NOT EXISTS (SELECT FROM __SCHEMA__.moves WHERE trigger = fired) THEN
        RETURN __SCHEMA__.rejected('unknown_trigger', locked.state, format('there is no trigger %s', fired));
    ELSIF NOT EXISTS (SELECT FROM __SCHEMA__.moves
                       WHERE trigger = fired AND (authority = ANY (open_to) OR 'anyone' = ANY (open_to))) THEN
        RETURN __SCHEMA__.rejected('not_yours', locked.state, format('%s is not for %s to fire', fired, authority));
    ELSIF at_version <> locked.version THEN
        RETURN jsonb_build_object('status', 'superseded', 'code', 'superseded', 'state', locked.state);
    END IF;
    IF fired = locked.due_trigger AND authority = 'machinery' AND locked.due_at <= clock_timestamp() THEN
        UPDATE __SCHEMA__.instances SET due_at = NULL, due_trigger = NULL WHERE id = instance;  -- it fires once
    END IF;
    RETURN __SCHEMA__.move(locked, fired, fired_by, authority, holds, data, false);
END $$;

-- Say how the approval was decided that a trigger waits for since the instance's version `held_at`.
CREATE FUNCTION __SCHEMA__.settle(
    instance text, held_trigger text, held_at integer, granted boolean, holds jsonb DEFAULT '{}'
) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    locked __SCHEMA__.instances;
    asked __SCHEMA__.held;
BEGIN
    SELECT * INTO locked FROM __SCHEMA__.instances WHERE id = instance FOR UPDATE;
    DELETE FROM __SCHEMA__.held h WHERE (h.id, h.trigger, h.version) = (instance, held_trigger, held_at)
    RETURNING * INTO asked;
    IF NOT FOUND THEN
        RAISE EXCEPTION '% of % does not wait for an approval since version %', held_trigger, instance, held_at;
    ELSIF NOT granted THEN
        RETURN __SCHEMA__.rejected('approval', locked.state, 'the approval was refused');
    ELSIF asked.version <> locked.version THEN
        RETURN jsonb_build_object('status', 'superseded', 'code', 'superseded', 'state', locked.state);
    END IF;
    RETURN __SCHEMA__.move(locked, held_trigger, asked.fired_by, asked.authority, holds, asked.data, true);
END $$;
