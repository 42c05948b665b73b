-- Operators: who may override, since when, granted by whom. Rows are kept: a revoked grant ends, it does not vanish.
-- Whatever this file refuses is refused to everyone, raw SQL included.

CREATE TABLE operators (
    grant_id   bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       varchar(100) NOT NULL CHECK (name <> ''),
    since      timestamptz  NOT NULL DEFAULT now(),
    granted_by varchar(100) NOT NULL CHECK (granted_by <> ''),
    until      timestamptz,
    revoked_by varchar(100),
    CHECK (until >= since)
);
CREATE INDEX operators_name ON operators (name);

CREATE FUNCTION interlock_is_operator(who text) RETURNS boolean LANGUAGE sql STABLE
    RETURN EXISTS (SELECT FROM operators WHERE name = who AND since <= now() AND (until IS NULL OR until > now()));

SELECT interlock_protect('operators', 'DELETE');
CREATE TRIGGER past_fixed BEFORE UPDATE ON operators FOR EACH ROW
    WHEN ((OLD.grant_id, OLD.name, OLD.since, OLD.granted_by) IS DISTINCT FROM
          (NEW.grant_id, NEW.name, NEW.since, NEW.granted_by)
          OR OLD.until <= now() OR NEW.until IS NULL OR NEW.until < now())
    EXECUTE FUNCTION interlock_fixed('who was an operator, and when,');
ALTER TABLE operators ENABLE ALWAYS TRIGGER past_fixed;

-- What an override must say. `operator` in an event's metadata is what makes it one (SSOT 7.3.2).

CREATE FUNCTION interlock_authorised() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    who text;
BEGIN
    IF NOT NEW.metadata ?| ARRAY['operator', 'override'] THEN
        RETURN NEW;
    END IF;
    who := NEW.metadata->>'operator';
    IF who IS NULL OR who IS DISTINCT FROM NEW.triggered_by OR NOT interlock_is_operator(who) THEN
        RAISE EXCEPTION 'override of % by %: no operator', NEW.workflow_id, COALESCE(who, '(nobody)')
            USING ERRCODE = 'insufficient_privilege', HINT = 'interlock operator list; interlock operator grant NAME';
    END IF;
    IF COALESCE(NEW.metadata->>'reason', '') = '' OR NEW.severity NOT IN ('warning', 'critical') THEN
        RAISE EXCEPTION 'override of % by % must give a reason, and be a warning', NEW.workflow_id, who
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER authorised BEFORE INSERT ON workflow_transitions FOR EACH ROW
    EXECUTE FUNCTION interlock_authorised();
ALTER TABLE workflow_transitions ENABLE ALWAYS TRIGGER authorised;

-- An agent cannot speak as an operator: only overrides carry one, and each does.
ALTER TABLE trigger_requests ADD CHECK ((origin = 'override') = (metadata ?| ARRAY['operator', 'override']));
