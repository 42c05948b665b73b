-- Refused attempts (docs/spec/refusals.md). A refusal aborts its transaction, so who was refused records it afterwards.

-- What was counted and recorded of each login: in a project, or ('') in all. Only `record_refusal` writes it.
CREATE TABLE interlock.refusal_counts (
    login      varchar(63)   NOT NULL,
    project    varchar(100)  NOT NULL,
    total      bigint        NOT NULL DEFAULT 0,
    recent     timestamptz[] NOT NULL DEFAULT '{}',  -- the newest records first, as many as an hour may have
    recent_who text[]        NOT NULL DEFAULT '{}',  -- who each was of, in a project
    -- The newest record: the event's request is proven by it, in the transaction that wrote this.
    log_id     uuid,
    request_id varchar(200),
    xid        xid8,
    PRIMARY KEY (login, project)
);

-- Whether as many as `most` were recorded within the last hour.
CREATE FUNCTION interlock.hour_is_full(recent timestamptz[], most integer) RETURNS boolean LANGUAGE sql STABLE
    RETURN cardinality(recent) >= most AND recent[most] > now() - interval '1 hour';

-- Record that the caller's login was refused: as an event of its log in the project, at most 20 in an hour, 10 of them of one
-- name, and 100 in all projects; beyond that it is only counted. A person who looks for an attack needs the first of its attempts, not each of them.
-- What was attempted is tried once more, and undone, so that nobody records what PostgreSQL does not refuse to this very login.
--   attempted: 'accept_all' or 'create_all', and its rows; 'as_itself', and the worker, `proof` and deed (`trigger`) of each;
--              or 'operate', what only operators may, and a row that says who (triggered_by) tried what (attempted) on which
--              instance (workflow_id, or what is known of it: instance, project)
-- Returns whether an event was asked for.
CREATE FUNCTION interlock.record_refusal(attempted text, rows json) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '250ms' AS $$
DECLARE
    in_project CONSTANT integer := 20;
    of_one     CONSTANT integer := 10;
    in_all     CONSTANT integer := 100;
    number     CONSTANT text := gen_random_uuid();
    everywhere interlock.refusal_counts;
    here       interlock.refusal_counts;
    tried      json;
    said       text;
    why        text;
    subject    record;
    log        uuid;
BEGIN
    INSERT INTO interlock.refusal_counts AS c (login, project, total) VALUES (session_user, '', 1)
        ON CONFLICT (login, project) DO UPDATE SET total = c.total + 1
        RETURNING * INTO everywhere;  -- locked: one at a time for a login
    IF interlock.hour_is_full(everywhere.recent, in_all) THEN
        RETURN false;
    END IF;
    BEGIN
        FOR tried IN SELECT value FROM json_array_elements(rows) LOOP
            CASE attempted
                WHEN 'create_all' THEN PERFORM interlock.create_all(json_build_array(tried));
                WHEN 'accept_all' THEN PERFORM interlock.accept_all(json_build_array(tried));
                WHEN 'as_itself' THEN
                    PERFORM interlock.as_itself((tried->>'workflow_id')::uuid, tried->>'proof', tried->>'trigger');
                WHEN 'operate' THEN
                    IF NOT interlock.is_operator(tried->>'triggered_by') THEN
                        RAISE EXCEPTION '% is not an operator', tried->>'triggered_by' USING ERRCODE = 'insufficient_privilege';
                    END IF;
            END CASE;
        END LOOP;
        RAISE EXCEPTION 'PostgreSQL does not refuse that' USING ERRCODE = 'triggered_action_exception';
    EXCEPTION WHEN insufficient_privilege THEN
        GET STACKED DIAGNOSTICS said = MESSAGE_TEXT, why = PG_EXCEPTION_DETAIL;
    END;
    IF attempted = 'create_all' THEN
        SELECT tried->>'project' AS project, 'create' AS attempted, (tried->>'workflow_type') || '/' || (tried->>'entity_id') AS instance,
               NULL::uuid AS id, tried->>'created_by' AS who INTO subject;
    ELSE
        SELECT COALESCE(i.project::text, tried->>'project') AS project, left(COALESCE(tried->>'trigger', tried->>'attempted'), 100) AS attempted,
               COALESCE(i.workflow_type || '/' || i.entity_id, left(tried->>'instance', 200)) AS instance, i.id,
               COALESCE(tried->>'triggered_by', i.entity_id) AS who INTO subject
          FROM (SELECT (tried->>'workflow_id')::uuid) AS named (id) LEFT JOIN interlock.workflow_instances i USING (id);
    END IF;
    SELECT * INTO here FROM interlock.refusal_counts c
     WHERE (c.login, c.project) = (session_user, subject.project);
    IF interlock.hour_is_full(here.recent, in_project)
       OR (SELECT count(*) FROM unnest(here.recent, here.recent_who) AS r (at, who)
            WHERE r.who = subject.who AND r.at > now() - interval '1 hour') >= of_one THEN
        RETURN false;
    END IF;
    INSERT INTO interlock.workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project, created_by)
    SELECT gen_random_uuid(), d.type, d.version, d.initial_state, session_user, subject.project, session_user
      FROM interlock.workflow_definitions d
     WHERE d.type = 'refusal_log' ORDER BY string_to_array(d.version, '.')::integer[] DESC LIMIT 1
        ON CONFLICT (project, workflow_type, entity_id) DO NOTHING;
    SELECT id INTO STRICT log FROM interlock.workflow_instances
     WHERE (project, workflow_type, entity_id) = (subject.project, 'refusal_log', session_user);
    INSERT INTO interlock.refusal_counts AS c (login, project, total, recent, recent_who, log_id, request_id, xid)
    VALUES (session_user, subject.project, 1, ARRAY[now()], ARRAY[subject.who], log, number, pg_current_xact_id())
        ON CONFLICT (login, project) DO UPDATE
           SET total = c.total + 1, recent = (ARRAY[now()] || c.recent)[:in_project],
               recent_who = (ARRAY[subject.who::text] || c.recent_who)[:in_project],
               log_id = EXCLUDED.log_id, request_id = EXCLUDED.request_id, xid = EXCLUDED.xid;
    UPDATE interlock.refusal_counts c SET recent = (ARRAY[now()] || c.recent)[:in_all] WHERE (c.login, c.project) = (session_user, '');
    INSERT INTO interlock.trigger_requests (request_id, fingerprint, workflow_id, trigger, triggered_by, metadata, authority, proof)
    VALUES (number, convert_to(number, 'UTF8'), log, 'refuse', subject.who,
            jsonb_strip_nulls(jsonb_build_object(
                'attempted', subject.attempted, 'instance', subject.instance, 'instance_id', subject.id,
                'reason', left(COALESCE(NULLIF(why, ''), said), 500))),
            'machinery', 'refusal');
    RETURN true;
END $$;
