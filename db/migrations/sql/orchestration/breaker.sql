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
    -- HALF_OPEN lets one request through: who holds this token until that instant.
    trial_token       uuid,
    trial_until       timestamptz,
    updated_at        timestamptz  NOT NULL DEFAULT now(),
    UNIQUE (project, tool_id)
);

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
       SET state = NEW.to_state,
           opened_at = CASE WHEN NEW.to_state = 'OPEN' THEN NEW.created_at ELSE opened_at END,
           failure_count = CASE WHEN NEW.to_state = 'CLOSED' THEN 0 ELSE failure_count END,
           success_count = 0, trial_token = NULL, trial_until = NULL,
           updated_at = NEW.created_at
     WHERE breaker_id = NEW.workflow_id;
END $$;
