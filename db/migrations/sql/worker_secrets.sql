-- What proves that a worker speaks for itself (AUTHORITY-15): a random secret that whoever registered it got once. Its SHA-256 is
-- in the worker's context, which is fixed and under the hash of its birth.

-- Inlined where a statement calls it, because all in it is immutable, which `convert_to` is not.
CREATE FUNCTION interlock.is_secret_of(context jsonb, secret text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE(length(secret) = 43  -- 256 bits: a shorter one could be found from its digest
                    AND encode(sha256(decode(replace(secret, '\', ''), 'escape')), 'hex') = context->>'secret_sha256', false);

-- Refuse whoever speaks for a worker without its secret, or once the token gives no right any more that it was registered with
-- (TOKEN-12); true otherwise.
--   deed: what is done in its name beside firing triggers, as the refusal says it
CREATE FUNCTION interlock.as_itself(worker uuid, secret text, deed text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    it      record;
    lacking text;
BEGIN
    SELECT workflow_type, entity_id, context, created_by, interlock.token_of(born_proof) AS token_id INTO it
      FROM interlock.workflow_instances WHERE id = worker;
    IF NOT interlock.is_secret_of(it.context, secret) THEN
        RAISE EXCEPTION '% of % % is open to: holder', deed, it.workflow_type, it.entity_id
            USING ERRCODE = 'insufficient_privilege', CONSTRAINT = 'authority',
                  DETAIL = format('to %s as %s %s needs the secret that it got as it registered: %s', deed, it.workflow_type,
                                  it.entity_id, interlock.not_its_secret(it.context, secret)),
                  HINT = 'interlock definitions show ' || it.workflow_type;
    END IF;
    lacking := interlock.not_by_token(t, it.created_by) FROM interlock.api_tokens t WHERE t.token_id = it.token_id;
    IF lacking IS NOT NULL THEN
        RAISE EXCEPTION '% of % % is open to: holder', deed, it.workflow_type, it.entity_id
            USING ERRCODE = 'insufficient_privilege', CONSTRAINT = 'authority',
                  DETAIL = format('nobody may %s as %s %s any more: %s', deed, it.workflow_type, it.entity_id, lacking),
                  HINT = 'interlock token list';
    END IF;
    RETURN true;
END $$;

-- Why a secret does not prove it, and what to do.
CREATE FUNCTION interlock.not_its_secret(context jsonb, secret text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN NOT context ? 'secret_sha256' THEN 'it got none; an operator may override'
                ELSE CASE WHEN COALESCE(secret, '') = '' THEN 'none is given' ELSE 'that is another' END
                     || '. If it is lost, an operator can shut the worker down, as its silence does; then register it again' END;

-- The supervised worker whose secret this is, if it is this one, or a worker of this job (JOB-11); NULL: it is of neither.
CREATE FUNCTION interlock.worker_of_secret(subject uuid, secret text) RETURNS uuid LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT i.id FROM interlock.workflow_instances i
             WHERE i.workflow_type = 'supervised_worker' AND interlock.is_secret_of(i.context, secret)
               AND i.id IN (SELECT subject UNION SELECT l.target_id FROM interlock.workflow_links l
                                                  WHERE l.source_id = subject AND l.role = 'workers')
             LIMIT 1);
END $$;

-- Take a claim in a worker's name: nobody can insert one without its secret. A task that is not queued, that is another run's, or for
-- which the worker lacks a capability is refused (WORKER-2, WORKER-3). Nothing comes back if somebody else has or took the task, or
-- the trial of its tool's breaker. A command's claim is its call's admission (BREAKER-11): that of a half-open breaker is the trial.
CREATE FUNCTION interlock.take_claim(task uuid, run uuid, worker uuid, secret text)
    RETURNS TABLE (claim_id bigint, token bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    its   record;
    why   text;
    actor text;
BEGIN
    PERFORM interlock.as_itself(worker, secret, 'claim');
    PERFORM interlock.sees_what_is();
    PERFORM FROM interlock.workers w WHERE w.worker_id = worker FOR NO KEY UPDATE;  -- workers come before what they hold
    SELECT t.state, t.run_id, t.kind, t.tool, t.limit_key, i.entity_id, i.project, b.breaker_id, interlock.required_by(t) AS needed INTO its
      FROM interlock.tasks t JOIN interlock.workflow_instances i ON i.id = t.task_id
      LEFT JOIN interlock.circuit_breakers b ON b.project = i.project AND b.tool_id = t.tool AND b.state <> 'CLOSED'
     WHERE t.task_id = task FOR NO KEY UPDATE OF t SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT CASE WHEN its.state <> 'queued' THEN format('it is %s, and not queued', its.state)
                WHEN its.run_id IS DISTINCT FROM run THEN 'it is of another run'
                WHEN w.project <> its.project THEN format('worker %s is of project %s', w.name, w.project)
                WHEN w.state NOT IN ('idle', 'IDLE') OR w.draining THEN
                    format('worker %s takes none: it is %s', w.name, CASE WHEN w.draining THEN 'draining' ELSE w.state END)
                WHEN NOT its.needed <@ w.capabilities THEN format('worker %s has no %s', w.name, array_to_string(ARRAY(
                    SELECT unnest(its.needed) EXCEPT SELECT unnest(w.capabilities)), ', ')) END
      INTO why FROM interlock.workers w WHERE w.worker_id = worker;
    IF why IS NOT NULL THEN
        RAISE EXCEPTION 'task % cannot be claimed: %', its.entity_id, why
            USING ERRCODE = 'check_violation', HINT = 'Claim what waits for such a worker: interlock worker claim';
    ELSIF its.breaker_id IS NOT NULL AND NOT interlock.lets_through(its.breaker_id) THEN
        RETURN;
    ELSIF interlock.any_budget_or_brake() THEN
        actor := (SELECT split_part(w.name, '#', 1) FROM interlock.workers w WHERE w.worker_id = worker);
        IF NOT interlock.may_claim(its.project, actor, run) THEN
            RETURN;
        END IF;
    END IF;
    IF EXISTS (SELECT FROM interlock.limits)
       AND (EXISTS (SELECT FROM interlock.task_claims c WHERE c.task_id = task AND c.revoked_at IS NULL AND c.ended_at IS NULL)
            OR NOT interlock.take_place(its.project, 'task', its.tool, its.limit_key)) THEN
        RETURN;
    END IF;
    INSERT INTO interlock.task_claims AS c (task_id, run_id, worker_id) VALUES (task, run, worker)
        ON CONFLICT (task_id) WHERE revoked_at IS NULL AND ended_at IS NULL DO NOTHING
    RETURNING c.claim_id, c.token INTO claim_id, token;
    IF NOT FOUND THEN
        RETURN;
    ELSIF actor IS NOT NULL THEN
        PERFORM interlock.use_budgets(its.project, actor, run::text, 'claims', 1);
    END IF;
    UPDATE interlock.circuit_breakers b
       SET trial_token = gen_random_uuid(), trial_claim = take_claim.claim_id, trial_until = NULL
     WHERE b.breaker_id = its.breaker_id AND b.state = 'HALF_OPEN' AND its.kind <> 'agent';
    RETURN NEXT;
END $$;
