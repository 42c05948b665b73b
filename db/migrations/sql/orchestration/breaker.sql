-- A circuit breaker of one tool in one project (docs/spec/breaker.md).

CREATE TABLE interlock.circuit_breakers (
    breaker_id        uuid         PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    project           varchar(100) NOT NULL,
    tool_id           varchar(100) NOT NULL,
    state             varchar(20)  NOT NULL CHECK (state IN ('CLOSED', 'OPEN', 'HALF_OPEN')),
    failure_threshold integer      NOT NULL DEFAULT 5 CHECK (failure_threshold >= 1),
    cooldown_seconds  double precision NOT NULL DEFAULT 60 CHECK (cooldown_seconds > 0),
    success_threshold integer      NOT NULL DEFAULT 1 CHECK (success_threshold >= 1),
    failure_count     integer      NOT NULL DEFAULT 0 CHECK (failure_count >= 0),
    success_count     integer      NOT NULL DEFAULT 0 CHECK (success_count >= 0),
    last_failure_at   timestamptz,
    opened_at         timestamptz,
    -- HALF_OPEN lets one call through: whose token this is. A task's call has it while its claim is open; a claim has no foreign
    -- key here, because one that left for the archive has ended. Any other call has it until `trial_until`. With neither, the
    -- trial's outcome is reported, and the trigger that follows from it is accepted.
    trial_token       uuid,
    trial_claim       bigint,
    trial_until       timestamptz,
    updated_at        timestamptz  NOT NULL DEFAULT now(),
    UNIQUE (project, tool_id),
    CHECK (num_nonnulls(trial_claim, trial_until) <= CASE WHEN trial_token IS NULL THEN 0 ELSE 1 END)
);

-- Until when a breaker turns calls away, at the latest (BREAKER-11); NULL: it lets the next one through. The end of an OPEN one's
-- cooldown, or of the time limit of a trial. In the past: what ends the wait has come, and is not applied yet.
CREATE FUNCTION interlock.turned_away_until(b interlock.circuit_breakers) RETURNS timestamptz LANGUAGE sql STABLE
    RETURN CASE
        WHEN b.state = 'CLOSED' THEN CASE WHEN b.failure_count >= b.failure_threshold THEN now() END
        WHEN b.state = 'OPEN' THEN b.opened_at + make_interval(secs => b.cooldown_seconds)
        WHEN b.trial_claim IS NOT NULL THEN (
            SELECT c.claimed_at + make_interval(secs => t.timeout_sec)
              FROM interlock.task_claims c JOIN interlock.tasks t USING (task_id)
             WHERE c.claim_id = b.trial_claim AND c.revoked_at IS NULL AND c.ended_at IS NULL)
        WHEN b.trial_until IS NOT NULL THEN CASE WHEN b.trial_until >= now() THEN b.trial_until END
        WHEN b.trial_token IS NOT NULL THEN now() END;

-- Whether a breaker lets a call through now. It locks the breaker first, so that of several who ask at once the second sees what
-- the first did: a claim that takes the trial is newer than the snapshot of whoever waited for the lock.
CREATE FUNCTION interlock.lets_through(breaker uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM interlock.circuit_breakers WHERE breaker_id = breaker FOR NO KEY UPDATE;
    RETURN (SELECT interlock.turned_away_until(b) IS NULL FROM interlock.circuit_breakers b WHERE b.breaker_id = breaker);
END $$;

-- Every change of a breaker's configuration: by whom, why, and from what to what (BREAKER-10). A row is the change itself: once
-- inserted it is carried out in the breaker's row, which decides, and in the cooldown that runs, which counts from the opening on.
-- What the row leaves out stays as it is; a row that changes nothing is not kept.
-- Failures already counted never reach a lower threshold by themselves: the next one does.

CREATE TABLE interlock.breaker_configurations (
    id                    bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    breaker_id            uuid         NOT NULL REFERENCES interlock.circuit_breakers (breaker_id),
    configured_at         timestamptz  NOT NULL DEFAULT now(),
    configured_by         varchar(100) NOT NULL,
    reason                text         NOT NULL,
    failure_threshold     integer      NOT NULL,
    cooldown_seconds      double precision NOT NULL,
    success_threshold     integer      NOT NULL,
    old_failure_threshold integer      NOT NULL,
    old_cooldown_seconds  double precision NOT NULL,
    old_success_threshold integer      NOT NULL
);
CREATE INDEX breaker_configurations_breaker ON interlock.breaker_configurations (breaker_id, id);

CREATE FUNCTION interlock.configure_breaker() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    breaker interlock.circuit_breakers;
BEGIN
    SELECT * INTO breaker FROM interlock.circuit_breakers WHERE breaker_id = NEW.breaker_id FOR NO KEY UPDATE;
    NEW.configured_at := now();
    NEW.old_failure_threshold := breaker.failure_threshold;
    NEW.old_cooldown_seconds := breaker.cooldown_seconds;
    NEW.old_success_threshold := breaker.success_threshold;
    NEW.failure_threshold := COALESCE(NEW.failure_threshold, breaker.failure_threshold);
    NEW.cooldown_seconds := COALESCE(NEW.cooldown_seconds, breaker.cooldown_seconds);
    NEW.success_threshold := COALESCE(NEW.success_threshold, breaker.success_threshold);
    IF (NEW.failure_threshold, NEW.cooldown_seconds, NEW.success_threshold)
       IS NOT DISTINCT FROM (breaker.failure_threshold, breaker.cooldown_seconds, breaker.success_threshold) THEN
        RETURN NULL;
    END IF;
    UPDATE interlock.circuit_breakers b
       SET failure_threshold = NEW.failure_threshold, cooldown_seconds = NEW.cooldown_seconds,
           success_threshold = NEW.success_threshold,
           failure_count = CASE WHEN b.state = 'CLOSED' AND b.failure_count < b.failure_threshold
                                THEN LEAST(b.failure_count, NEW.failure_threshold - 1) ELSE b.failure_count END
     WHERE b.breaker_id = NEW.breaker_id;
    UPDATE interlock.trigger_requests
       SET not_before = breaker.opened_at + make_interval(secs => NEW.cooldown_seconds)
     WHERE breaker.state = 'OPEN' AND workflow_id = NEW.breaker_id AND trigger = 'cooldown_expires' AND status = 'scheduled';
    RETURN NEW;
END $$;

-- What a breaker is decided by: its context, as it was born, and its present configuration, which its deadline reads.
CREATE FUNCTION interlock.configured(i interlock.workflow_instances) RETURNS jsonb LANGUAGE sql STABLE
    RETURN i.context || COALESCE((
        SELECT jsonb_build_object('failure_threshold', b.failure_threshold, 'cooldown_seconds', b.cooldown_seconds,
                                  'success_threshold', b.success_threshold)
          FROM interlock.circuit_breakers b WHERE b.breaker_id = i.id), '{}');

CREATE TRIGGER configures BEFORE INSERT ON interlock.breaker_configurations FOR EACH ROW
    EXECUTE FUNCTION interlock.configure_breaker();

-- At commit: a breaker's configuration is the one that its newest row says.
CREATE FUNCTION interlock.configuration_in_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM interlock.circuit_breakers b
                WHERE b.breaker_id = NEW.breaker_id
                  AND (b.failure_threshold, b.cooldown_seconds, b.success_threshold) IS DISTINCT FROM
                      (SELECT (c.failure_threshold, c.cooldown_seconds, c.success_threshold)
                         FROM interlock.breaker_configurations c
                        WHERE c.breaker_id = b.breaker_id ORDER BY c.id DESC LIMIT 1)) THEN
        RAISE EXCEPTION 'configuration of the circuit breaker of % changed without saying who and why', NEW.tool_id
            USING ERRCODE = 'check_violation', HINT = 'interlock breaker configure TOOL --by WHO --reason WHY';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER configuration_in_history
    AFTER UPDATE OF failure_threshold, cooldown_seconds, success_threshold ON interlock.circuit_breakers
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN ((OLD.failure_threshold, OLD.cooldown_seconds, OLD.success_threshold)
          IS DISTINCT FROM (NEW.failure_threshold, NEW.cooldown_seconds, NEW.success_threshold))
    EXECUTE FUNCTION interlock.configuration_in_history();

CREATE FUNCTION interlock.born_circuit_breaker(new interlock.workflow_instances) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO interlock.circuit_breakers (breaker_id, project, tool_id, state, failure_threshold, cooldown_seconds,
                                  success_threshold)
    VALUES (NEW.id, NEW.project, NEW.context->>'tool_id', NEW.current_state,
            COALESCE((NEW.context->>'failure_threshold')::integer, 5),
            COALESCE((NEW.context->>'cooldown_seconds')::double precision, 60),
            COALESCE((NEW.context->>'success_threshold')::integer, 1));
END $$;

CREATE FUNCTION interlock.moved_circuit_breaker(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE interlock.circuit_breakers
       SET state = NEW.to_state, updated_at = NEW.created_at,
           opened_at = CASE WHEN NEW.to_state = 'OPEN' THEN NEW.created_at ELSE opened_at END,
           failure_count = CASE WHEN NEW.to_state = 'CLOSED' THEN 0 ELSE failure_count END,
           success_count = 0, trial_token = NULL, trial_claim = NULL, trial_until = NULL
     WHERE breaker_id = NEW.workflow_id;
END $$;
