-- Who may fire what (docs/spec/authority.md). A request says by which right its trigger is fired, and what proves that. Both are
-- checked where it is accepted, for whoever writes the row; the row of history repeats them.

-- Why a request's proof does not hold; NULL: it holds. A claim or lease also counts that ends in this very transaction, because
-- a report and the end of what it reports on are one commit.
--   effect:    lease:EFFECT:TOKEN, of an effect that this instance's present state asked for
--   machinery: event:ID, a move of a linked instance; state:VERSION, that the instance was found at; run:ID, of which it is a
--              part; claim:ID, that the worker took or ended; worker:ID, that registered and has not ended
--   operator:  grant:ID, which is looked up, and a reason
-- A schedule's is `schedule:ID` (`not_scheduled`); of what is open to operators only, it becomes their grant.
CREATE FUNCTION interlock.unproven(r interlock.trigger_requests, stands integer) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    said   text := split_part(r.proof, ':', 2);
    named  uuid := CASE length(said) WHEN 36 THEN substring(said FROM '^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$')::uuid END;
    number bigint := CASE WHEN length(said) <= 18 THEN substring(said FROM '^[0-9]{1,18}$')::bigint END;
BEGIN
    CASE r.authority || ' ' || COALESCE(split_part(r.proof, ':', 1), '')
        WHEN 'effect lease' THEN
            IF EXISTS (SELECT FROM interlock.effects e
                        WHERE e.id = named AND e.workflow_id = r.workflow_id
                          AND e.version = COALESCE(r.bound_version, e.version)
                          AND e.token = substring(split_part(r.proof, ':', 3) FROM '^[0-9]{1,18}$')::bigint
                          AND (e.done_trigger IS NULL OR r.trigger IN (e.done_trigger, e.failed_trigger))
                          AND (e.status = 'leased' AND e.lease_until > now() OR e.finished_at = now())) THEN
                RETURN NULL;
            END IF;
            RETURN format('%s is no lease of an effect of this instance, or it has ended', r.proof);
        WHEN 'machinery event' THEN
            IF EXISTS (SELECT FROM interlock.workflow_transitions t
                         JOIN interlock.workflow_links l
                           ON (l.source_id, l.target_id) = (t.workflow_id, r.workflow_id)
                              OR (l.target_id, l.source_id) = (t.workflow_id, r.workflow_id)
                        WHERE t.id = named) THEN
                RETURN NULL;
            END IF;
            RETURN format('%s is no move of a linked instance', r.proof);
        WHEN 'machinery state' THEN
            IF number <= stands AND COALESCE(r.bound_version, number) >= number THEN
                RETURN NULL;
            END IF;
            RETURN format('the instance is not yet at version %s', said);
        WHEN 'machinery run' THEN
            -- Most are tasks, which are asked for by themselves: in one condition, PostgreSQL would prepare all five queries.
            IF r.bound_version IS NOT NULL AND EXISTS (SELECT FROM interlock.tasks WHERE task_id = r.workflow_id AND run_id = named) THEN
                RETURN NULL;
            END IF;
            IF r.bound_version IS NOT NULL
               AND (EXISTS (SELECT FROM interlock.workstreams WHERE ws_id = r.workflow_id AND run_id = named)
                    OR EXISTS (SELECT FROM interlock.test_gates WHERE gate_id = r.workflow_id AND run_id = named)
                    OR EXISTS (SELECT FROM interlock.patch_ledger_entries
                                WHERE ledger_id = r.workflow_id AND run_id = named)
                    OR r.workflow_id = named) THEN
                RETURN NULL;
            END IF;
            RETURN format('the instance is no part of %s, or the request is not bound to a version', r.proof);
        WHEN 'machinery claim' THEN
            IF EXISTS (SELECT FROM interlock.task_claims c WHERE c.claim_id = number AND c.worker_id = r.workflow_id) THEN
                RETURN NULL;
            END IF;
            RETURN 'that is no claim of this worker';
        WHEN 'machinery worker' THEN
            IF named = r.workflow_id AND EXISTS (SELECT FROM interlock.workers w WHERE w.worker_id = named AND w.shutdown_at IS NULL) THEN
                RETURN NULL;
            END IF;
            RETURN format('%s is not this worker, or has ended', r.proof);
        WHEN 'machinery refusal' THEN
            IF EXISTS (SELECT FROM interlock.refusal_counts c
                        WHERE (c.login, c.log_id, c.request_id, c.xid)
                              = (session_user, r.workflow_id, r.request_id, pg_current_xact_id())) THEN
                RETURN NULL;
            END IF;
            RETURN 'nothing was refused';
        WHEN 'operator grant' THEN
            IF COALESCE(r.metadata->>'reason', '') <> '' THEN
                RETURN NULL;
            END IF;
            RETURN 'no reason is given';
        WHEN 'operator ' THEN
            RETURN format('%s is not an operator', r.triggered_by);
        ELSE
            RETURN CASE WHEN r.proof IS NULL THEN 'nothing proves it' ELSE format('a %s proves no %s', split_part(r.proof, ':', 1), r.authority) END;
    END CASE;
END $$;

-- Why somebody may not decide on an instance with this context; NULL: nothing stands against it (APPROVAL-2).
CREATE FUNCTION interlock.no_decider(who text, fired text, type text, under text, context jsonb) RETURNS text
    LANGUAGE sql STABLE RETURN CASE
        WHEN context->'deciders' NOT IN ('[]', 'null') AND NOT context->'deciders' ? who
            THEN format('%s is none of its deciders', who)
        WHEN context->>'author' = who
             AND (SELECT body->'rules' @> jsonb_build_array(jsonb_build_object('trigger', fired, 'settles', 'granted'))
                    FROM interlock.workflow_definitions d WHERE (d.type, d.version) = (no_decider.type, under))
            THEN format('%s is its author', who)
    END;

-- Why somebody with this worker's claim says that he is another worker; NULL: he does not (AUTHORITY-8).
CREATE FUNCTION interlock.speaks_for_another(r interlock.trigger_requests, holder uuid) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
    its_name CONSTANT text := (SELECT name FROM interlock.workers WHERE worker_id = holder);
BEGIN
    RETURN CASE
        WHEN r.metadata->>'worker_id' <> holder::text THEN format('worker %s has the claim, not %s', its_name, r.metadata->>'worker_id')
        WHEN r.metadata->>'worker' <> its_name THEN format('worker %s has the claim, not %s', its_name, r.metadata->>'worker')
        WHEN r.triggered_by NOT IN (its_name, split_part(its_name, '#', 1), 'crew')
             AND EXISTS (SELECT FROM interlock.workers w WHERE w.name = r.triggered_by)
            THEN format('worker %s has the claim, not %s', its_name, r.triggered_by) END;
END $$;

-- Refuse a request, and say why; a repetition needs no right any more: it conflicts with what was accepted, which is locked so that it
-- stays until then.
CREATE FUNCTION interlock.refuse_request(r interlock.trigger_requests, open_to text[], lacking text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    target record;
BEGIN
    PERFORM FROM interlock.trigger_requests known WHERE known.request_id = r.request_id FOR KEY SHARE;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT workflow_type, entity_id INTO target FROM interlock.workflow_instances WHERE id = r.workflow_id;
    RAISE EXCEPTION '% of % % is open to: %', r.trigger, target.workflow_type, target.entity_id, array_to_string(open_to, ', ')
        USING ERRCODE = 'insufficient_privilege', CONSTRAINT = 'authority',
              DETAIL = format('%s may not fire %s of %s %s: %s', r.triggered_by, r.trigger, target.workflow_type,
                              target.entity_id, lacking),
              HINT = 'interlock definitions show ' || target.workflow_type;
END $$;

-- What not everyone may fire. Only what is open to anyone, nearly all that agents fire, does without this.
-- workflow_type, under, named, stands, context: of the instance, as `accept` has read it. `by_token`: the token it is asked by, if any.
CREATE FUNCTION interlock.accept_closed(INOUT r interlock.trigger_requests, open_to text[], workflow_type text, under text, named text,
                                        stands integer, context jsonb, by_token uuid DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE
    itself  boolean := workflow_type IN ('worker', 'uet_worker', 'supervised_worker')
                       AND r.triggered_by IN (named, split_part(named, '#', 1));
    held    text;
    holder  uuid;
    lacking text;
BEGIN
    IF r.origin = 'override' THEN
        r.authority := 'operator';
        open_to := ARRAY['operator'];
    ELSIF r.granted THEN
        lacking := 'a request is born without an approval';
    ELSIF (r.authority IN ('machinery', 'effect') OR r.proof LIKE 'secret:%') AND r.proof IS DISTINCT FROM 'refusal'
          AND NOT interlock.is_engine() THEN
        lacking := format('the login %s is no member of interlock_engine', session_user);
    ELSIF r.authority = 'machinery' AND (workflow_type = 'refusal_log') <> (r.proof IS NOT DISTINCT FROM 'refusal') THEN
        lacking := 'a log of refusals says what was refused, and nothing else';
    ELSIF r.proof LIKE 'schedule:%' THEN  -- by its creator, as if he fired it now
        lacking := interlock.not_scheduled(r, open_to, by_token);
        IF lacking IS NULL AND 'anyone' = ANY (open_to) THEN
            r.authority := 'anyone';
            RETURN;
        END IF;
        r.authority := 'operator';
    ELSIF r.authority = 'anyone' THEN  -- it says nothing of a right: has it one by who fires it?
        IF 'anyone' = ANY (open_to) THEN
            r.proof := NULL;
            RETURN;
        ELSIF 'decider' = ANY (open_to) THEN
            r.authority := 'decider';
        ELSIF 'operator' = ANY (open_to) THEN
            r.authority := 'operator';
        ELSE
            lacking := CASE WHEN itself THEN 'its secret is needed: ' || interlock.not_its_secret(context, NULL)
                            ELSE 'nothing proves it' END;
        END IF;
    ELSIF NOT open_to && ARRAY[r.authority::text, 'anyone'] THEN
        lacking := format('%s may not', r.authority);
    END IF;
    IF lacking IS NOT NULL THEN
        NULL;
    ELSIF r.authority = 'decider' THEN
        lacking := interlock.no_decider(r.triggered_by, r.trigger, workflow_type, under, context);
        r.proof := NULL;
    ELSIF r.authority = 'holder' AND r.proof LIKE 'secret:%' THEN  -- kept as `itself`, because the secret must not be
        lacking := CASE WHEN by_token IS NOT NULL AND interlock.worker_of_secret(r.workflow_id, substring(r.proof FROM 8)) IS NOT NULL
                            THEN NULL  -- SUPERVISED-10
                        WHEN NOT itself THEN format('%s is not the worker %s', r.triggered_by, named)
                        WHEN NOT interlock.is_secret_of(context, substring(r.proof FROM 8)) THEN
                            'its secret is needed: ' || interlock.not_its_secret(context, substring(r.proof FROM 8)) END;
        r.proof := 'itself';
    ELSIF r.authority = 'holder' THEN  -- claim:TOKEN; from here on, its id, which is no secret
        SELECT 'claim:' || c.claim_id, c.worker_id INTO held, holder FROM interlock.task_claims c
         WHERE c.token = substring(r.proof FROM '^claim:([0-9]{1,18})$')::bigint AND c.task_id = r.workflow_id
           AND COALESCE(c.revoked_at, now()) = now() AND COALESCE(c.ended_at, now()) = now()
           FOR SHARE;  -- it neither ends nor is revoked before this is committed
        lacking := CASE WHEN held IS NULL THEN 'that is no open claim of this task' ELSE interlock.speaks_for_another(r, holder) END;
        r.proof := COALESCE(held, 'claim');
    ELSE
        IF r.authority = 'operator' AND r.triggered_by <> session_user
           AND NOT interlock.is_engine() THEN
            lacking := format('the login %s can be no operator but itself', session_user);
        ELSIF r.authority = 'operator' THEN
            r.proof := interlock.grant_of(r.triggered_by);
        END IF;
        lacking := COALESCE(lacking, interlock.unproven(r, stands));
    END IF;
    IF lacking IS NOT NULL THEN
        PERFORM interlock.refuse_request(r, open_to, lacking);
    END IF;
END $$;

-- A request that is made with a token (`token:ID`, behind what else proves its right): its token has to allow it, and it is judged as
-- if the token's name had made it in process. Its proof keeps the token.
CREATE FUNCTION interlock.accept_by_token(INOUT r interlock.trigger_requests, open_to text[]) LANGUAGE plpgsql AS $$
DECLARE
    said    CONSTANT text := substring(r.proof FROM '(?:^| )(token:.*)$');
    token   interlock.api_tokens;
    target  record;
    lacking text;
BEGIN
    SELECT * INTO token FROM interlock.api_tokens WHERE token_id = interlock.token_of(r.proof);
    SELECT * INTO target FROM interlock.workflow_instances WHERE id = r.workflow_id;
    r.proof := interlock.without_token(r.proof);
    lacking := CASE
        WHEN r.authority = 'machinery' AND target.workflow_type IN ('supervised_worker', 'job') AND r.proof LIKE 'state:%'
             AND r.origin = 'agent'
            THEN COALESCE(interlock.not_by_token(token, r.triggered_by), interlock.not_supervising(token, target.id))
        WHEN r.authority IN ('machinery', 'effect') OR r.origin NOT IN ('agent', 'override') AND (r.proof LIKE 'schedule:%') IS NOT TRUE
            THEN 'a token is no part of Interlock'
        ELSE interlock.not_by_token(token, r.triggered_by) END;
    IF lacking IS NULL AND r.authority = 'holder' AND r.proof IS NULL AND target.workflow_type = 'api_token' THEN
        lacking := interlock.not_its_own(token, target.id);
    ELSE
        lacking := COALESCE(lacking, interlock.not_covered(token, target.project, target.workflow_type, target.id));
        IF lacking IS NULL THEN
            r := interlock.accept_closed(r, open_to, target.workflow_type, target.definition_version, target.entity_id, target.version,
                                         target.context, token.token_id);
            IF r.authority = 'operator' AND token.role NOT IN ('operator', 'admin') THEN
                lacking := format('a token of the role %s is no operator', token.role);
            END IF;
        END IF;
    END IF;
    IF lacking IS NOT NULL THEN
        PERFORM interlock.refuse_request(r, open_to, lacking);
    END IF;
    r.proof := concat_ws(' ', r.proof, said);
END $$;

-- Whether the session's login runs Interlock's parts, and not only an application. The schema's owner, who could drop this
-- function, migrates: that makes the first operators.
CREATE FUNCTION interlock.is_engine() RETURNS boolean LANGUAGE sql STABLE
    RETURN pg_has_role(session_user, 'interlock_engine', 'MEMBER') OR pg_has_role(session_user, 'interlock_owner', 'MEMBER');

CREATE FUNCTION interlock.accept() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    target  record;  -- `watched`: mostly there is neither budget nor brake, and then nothing else is asked
    open_to text[];
BEGIN
    IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN  -- asked here: the call costs eight times as much
        PERFORM interlock.sees_what_is();
    END IF;
    NEW.login := session_user;
    IF (NEW.origin <> 'agent' OR NEW.request_id LIKE 'interlock:%') AND NOT interlock.is_engine() THEN
        RAISE EXCEPTION '% is open to: machinery', NEW.trigger
            USING ERRCODE = 'insufficient_privilege', CONSTRAINT = 'authority',
                  DETAIL = format('%s may not fire %s in that way: the login %s is no member of interlock_engine',
                                  NEW.triggered_by, NEW.trigger, session_user);
    END IF;
    SELECT i.workflow_type, i.definition_version, i.entity_id, i.version, i.context, t."by" AS open_to, n.open_to AS narrowed,
           EXISTS (SELECT FROM interlock.budgets) OR EXISTS (SELECT FROM interlock.brakes) AS watched
      INTO target  -- all of a trigger's transitions have the same `by`
      FROM interlock.workflow_instances i
      LEFT JOIN interlock.definition_transitions t
        ON t.type = i.workflow_type AND t.version = i.definition_version AND t.trigger = NEW.trigger
      LEFT JOIN interlock.narrowings n ON (n.project, n.type, n.trigger) = (i.project, i.workflow_type, NEW.trigger)
     WHERE i.id = NEW.workflow_id LIMIT 1;
    open_to := target.open_to;
    IF open_to IS NULL THEN  -- the foreign key refuses what does not exist; the machine, what it does not know
        IF NEW.request_id LIKE 'interlock:%' AND target.workflow_type IS NOT NULL THEN
            -- proven all the same, or it would keep Interlock from using that id
            RETURN interlock.accept_closed(NEW, ARRAY[NEW.authority::text], target.workflow_type, target.definition_version,
                                           target.entity_id, target.version, target.context);
        END IF;
        IF NEW.proof LIKE '%token:%' AND target.workflow_type IS NOT NULL THEN
            RETURN interlock.accept_by_token(NEW, ARRAY['anyone']);
        END IF;
        NEW.authority := CASE NEW.origin WHEN 'override' THEN 'operator' ELSE 'anyone' END;
        NEW.proof := CASE NEW.origin WHEN 'override' THEN interlock.grant_of(NEW.triggered_by) END;
        NEW.granted := false;
        IF interlock.any_budget_or_brake() THEN
            NEW := interlock.budgeted(NEW);
        END IF;
        RETURN NEW;
    END IF;
    IF target.narrowed IS NOT NULL THEN
        open_to := interlock.narrowed(open_to, target.narrowed);
    END IF;
    IF NEW.proof LIKE '%token:%' THEN
        NEW := interlock.accept_by_token(NEW, open_to);
    ELSIF NEW.proof IS NOT NULL OR NEW.authority <> 'anyone' OR NOT 'anyone' = ANY (open_to) OR NEW.origin <> 'agent' OR NEW.granted THEN
        NEW := interlock.accept_closed(NEW, open_to, target.workflow_type, target.definition_version, target.entity_id, target.version,
                                       target.context);
    END IF;
    IF target.watched THEN
        NEW := interlock.budgeted(NEW);
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER accept BEFORE INSERT ON interlock.trigger_requests FOR EACH ROW EXECUTE FUNCTION interlock.accept();

-- What was accepted stays what it is. An operator who revives a request adds his name and his reason to it.
CREATE FUNCTION interlock.accepted_fixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.request_id, OLD.fingerprint, OLD.workflow_id, OLD.trigger, OLD.triggered_by, OLD.origin, OLD.bound_version,
        OLD.authority, OLD.proof, OLD.login, OLD.metadata - ARRAY['redriven_by', 'redriven_because'])
       IS DISTINCT FROM
       (NEW.request_id, NEW.fingerprint, NEW.workflow_id, NEW.trigger, NEW.triggered_by, NEW.origin,
        CASE WHEN NEW.granted AND NOT OLD.granted THEN OLD.bound_version ELSE NEW.bound_version END,  -- see `approved`
        NEW.authority, NEW.proof, NEW.login, NEW.metadata - ARRAY['redriven_by', 'redriven_because']) THEN
        RAISE EXCEPTION 'request % was accepted as it is: it cannot change', OLD.request_id
            USING ERRCODE = 'restrict_violation', HINT = 'Fire another trigger.';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER accepted_fixed BEFORE UPDATE OF request_id, fingerprint, workflow_id, trigger, triggered_by, origin,
    bound_version, authority, proof, login, metadata ON interlock.trigger_requests
    FOR EACH ROW EXECUTE FUNCTION interlock.accepted_fixed();

-- A job takes its workers along, so it gets none that are not its own (JOB-1): none of another project or of another job
-- that has not ended, and none that works already, unless both have one creator.
CREATE FUNCTION interlock.own_workers() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    job    interlock.workflow_instances;
    worker interlock.workflow_instances;
    why    text;
BEGIN
    SELECT * INTO job FROM interlock.workflow_instances WHERE id = NEW.source_id AND workflow_type = 'job';
    IF NOT FOUND  -- a role of that name, of a definition of somebody's own
       OR EXISTS (SELECT FROM interlock.workflow_links l
                   WHERE (l.source_id, l.role, l.target_id) = (NEW.source_id, NEW.role, NEW.target_id)) THEN
        RETURN NEW;
    END IF;
    -- One at a time in a project, so that two jobs do not take a worker at once.
    PERFORM pg_advisory_xact_lock(hashtextextended('interlock.own_workers ' || job.project, 0));
    SELECT * INTO worker FROM interlock.workflow_instances WHERE id = NEW.target_id;
    why := CASE
               WHEN worker.project <> job.project THEN 'it is of another project'
               WHEN EXISTS (SELECT FROM interlock.workflow_links l
                              JOIN interlock.jobs o ON o.id = l.source_id AND o.id <> job.id AND o.completed_at IS NULL
                             WHERE l.target_id = worker.id AND l.role = 'workers') THEN 'another job has it'
               WHEN worker.current_state <> 'IDLE' AND worker.created_by <> job.created_by
                   THEN format('it is %s, and %s created it', worker.current_state, worker.created_by)
           END;
    IF why IS NOT NULL THEN
        RAISE EXCEPTION 'worker % cannot be of job %: %', worker.entity_id, job.entity_id, why
            USING ERRCODE = 'restrict_violation', HINT = 'interlock job allocate JOB';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER own_workers BEFORE INSERT ON interlock.workflow_links
    FOR EACH ROW WHEN (NEW.role = 'workers') EXECUTE FUNCTION interlock.own_workers();
