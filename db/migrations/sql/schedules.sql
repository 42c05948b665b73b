-- Schedules (docs/spec/schedule.md): what the sweep `schedules` looks at. A row follows its schedule's birth and events, and goes with
-- its end.
CREATE TABLE interlock.schedules (
    schedule_id uuid        PRIMARY KEY,
    login       varchar(63) NOT NULL,            -- who was logged in as it was created: it may do no more than that login
    settled     timestamptz NOT NULL,            -- its times up to this one are fired, or will not be
    next_at     timestamptz,                     -- when to look again; NULL: it is paused
    fired       bigint      NOT NULL DEFAULT 0,
    last_due    timestamptz,                     -- the newest time that was fired
    failed_at   timestamptz                      -- since when it cannot be fired; NULL: it was, or had no time yet
);
CREATE INDEX schedules_next ON interlock.schedules (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedules_failing ON interlock.schedules (failed_at) WHERE failed_at IS NOT NULL;

CREATE TRIGGER login_fixed BEFORE UPDATE OF login ON interlock.schedules FOR EACH ROW
    WHEN (OLD.login IS DISTINCT FROM NEW.login) EXECUTE FUNCTION interlock.fixed('login');

-- As `is_engine`, of any login; one that was dropped since is none.
CREATE FUNCTION interlock.is_engine_login(named text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM pg_roles WHERE rolname = named)
           AND (pg_has_role(named, 'interlock_engine', 'MEMBER') OR pg_has_role(named, 'interlock_owner', 'MEMBER'));
EXCEPTION WHEN undefined_object THEN  -- dropped between the two
    RETURN false;
END $$;

-- Why a schedule may not fire a trigger that is open to these; NULL: it may (SCHEDULE-5). A decision is a person's, at its time; what
-- needs a token or a secret is nobody's else.
CREATE FUNCTION interlock.not_for_schedules(open_to text[], who text, named text) RETURNS text LANGUAGE sql STABLE
    RETURN CASE WHEN 'anyone' = ANY (open_to) THEN NULL
                WHEN NOT 'operator' = ANY (open_to) THEN 'a schedule fires only what is open to anyone or to operators'
                WHEN who <> named AND NOT interlock.is_engine_login(named)
                    THEN format('the login %s, which created the schedule, can be no operator but itself', named)
                WHEN interlock.grant_of(who) IS NULL THEN format('%s is not an operator', who) END;

-- Why a request does not come from the schedule that it names (`schedule:ID`); NULL: it does. The id says which schedule and which of
-- its times, so that each is fired once.
CREATE FUNCTION interlock.not_scheduled(r interlock.trigger_requests, open_to text[], by_token uuid) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    said  record;
    named uuid := substring(r.proof FROM '^schedule:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$')::uuid;
    due   timestamptz := substring(r.request_id FROM '^interlock:schedule:' || named || ':([0-9]{8}T[0-9]{6}Z)$')::timestamptz;
BEGIN
    SELECT i.created_by, i.context->'does'->'fire' AS fire, i.created_at, i.born_proof, s.login,
           i.project = (SELECT project FROM interlock.workflow_instances WHERE id = r.workflow_id) AS of_project INTO said
      FROM interlock.workflow_instances i JOIN interlock.schedules s ON s.schedule_id = i.id
     WHERE i.id = named AND i.current_state = 'active';
    RETURN CASE
        WHEN NOT FOUND THEN format('%s is no active schedule', r.proof)
        WHEN (said.created_by, said.fire->>'trigger', said.fire->>'instance', COALESCE(said.fire->'data', '{}'), said.of_project)
             IS DISTINCT FROM (r.triggered_by, r.trigger, r.workflow_id::text, r.metadata, true)
            THEN format('%s fires something else', r.proof)
        WHEN said.born_proof IS DISTINCT FROM 'token:' || by_token THEN format('%s was created with another token, or with none', r.proof)
        WHEN (due BETWEEN said.created_at AND clock_timestamp()) IS NOT TRUE THEN 'that is none of its times'
        ELSE interlock.not_for_schedules(open_to, r.triggered_by, said.login) END;
END $$;

-- Whether a client may not have done what a schedule does: submit a plan, or create what Interlock's parts carry out.
CREATE FUNCTION interlock.closed_to_clients(does jsonb) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN does ? 'submit' OR split_part(does->'create'->>'type', '@', 1) IN (SELECT interlock.of_engine_only());
END $$;

-- What its creator may not do, a schedule cannot be created for: what it would create or submit is judged by this login, what it would
-- fire is judged again each time.
CREATE FUNCTION interlock.born_schedule(new interlock.workflow_instances) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    does    CONSTANT jsonb := new.context->'does';
    created CONSTANT text := split_part(does->'create'->>'type', '@', 1);
    target  record;
    why     text;
BEGIN
    IF NOT interlock.is_engine() AND interlock.closed_to_clients(does) THEN
        RAISE EXCEPTION 'a schedule that creates a % needs a member of interlock_engine', COALESCE(created, 'run')
            USING ERRCODE = 'insufficient_privilege';
    ELSIF created = 'schedule' THEN  -- whose login would be that of the node that creates it
        RAISE EXCEPTION 'a schedule cannot create a schedule' USING ERRCODE = 'check_violation';
    END IF;
    IF does ? 'fire' THEN
        SELECT i.workflow_type, i.entity_id, does->'fire'->>'trigger' AS trigger,
               CASE WHEN n.open_to IS NULL THEN t."by" ELSE interlock.narrowed(t."by", n.open_to) END AS open_to INTO target
          FROM interlock.workflow_instances i
          LEFT JOIN interlock.definition_transitions t
            ON (t.type, t.version, t.trigger) = (i.workflow_type, i.definition_version, does->'fire'->>'trigger')
          LEFT JOIN interlock.narrowings n ON (n.project, n.type, n.trigger) = (i.project, i.workflow_type, t.trigger)
         WHERE i.id = (does->'fire'->>'instance')::uuid AND i.project = new.project LIMIT 1;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'project % has no instance %', new.project, does->'fire'->>'instance'
                USING ERRCODE = 'foreign_key_violation';
        ELSIF target.open_to IS NULL THEN
            RAISE EXCEPTION '% has no trigger %', target.workflow_type, target.trigger USING ERRCODE = 'check_violation';
        END IF;
        why := interlock.not_for_schedules(target.open_to, new.created_by, session_user);
        IF why IS NOT NULL THEN
            RAISE EXCEPTION '% may not have % of % % fired by a schedule: %', new.created_by, target.trigger, target.workflow_type,
                target.entity_id, why USING ERRCODE = 'insufficient_privilege', HINT = 'interlock definitions show ' || target.workflow_type;
        END IF;
    END IF;
    INSERT INTO interlock.schedules (schedule_id, login, settled, next_at)
    VALUES (new.id, session_user, new.created_at, new.created_at);
END $$;

-- The times of a pause are not made up for. A failure says nothing of the next time; the next that is fired ends it (`settle`).
CREATE FUNCTION interlock.moved_schedule(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF new.to_state = 'ended' THEN
        DELETE FROM interlock.schedules WHERE schedule_id = new.workflow_id;
    ELSIF new.to_state = 'paused' THEN
        UPDATE interlock.schedules SET next_at = NULL WHERE schedule_id = new.workflow_id;
    ELSIF new.trigger = 'firing_failed' THEN
        UPDATE interlock.schedules SET failed_at = COALESCE(failed_at, new.created_at) WHERE schedule_id = new.workflow_id;
    ELSIF new.from_state = 'paused' THEN
        UPDATE interlock.schedules SET settled = GREATEST(settled, new.created_at), next_at = new.created_at
         WHERE schedule_id = new.workflow_id;
    END IF;
END $$;
