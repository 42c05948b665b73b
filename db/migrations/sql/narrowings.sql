-- Narrowed rights (docs/spec/narrowing.md): what `accept` looks at. A row follows its narrowing's events, in their statement; nobody
-- else writes here.
CREATE TABLE interlock.narrowings (
    project      varchar(100) NOT NULL,
    type         varchar(50)  NOT NULL,
    trigger      varchar(100) NOT NULL,
    open_to      text[]       NOT NULL CHECK (cardinality(open_to) > 0),
    narrowing_id uuid         NOT NULL UNIQUE,
    PRIMARY KEY (project, type, trigger)
);

-- Terms that any recorded version of the type contradicts would widen what it says. Narrowings themselves cannot be narrowed, or
-- nobody could lift them.
CREATE FUNCTION interlock.narrower() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wanted text[];
    wider  text;
BEGIN
    IF NOT COALESCE(jsonb_typeof(NEW.context->'to') = 'array', false) THEN
        RAISE EXCEPTION 'a narrowing says to whom: a list of authorities' USING ERRCODE = 'check_violation';
    END IF;
    wanted := ARRAY(SELECT jsonb_array_elements_text(NEW.context->'to'));
    IF cardinality(wanted) = 0 OR 'anyone' = ANY (wanted) OR NEW.context->>'type' IN ('narrowing', 'refusal_log')
       OR NOT EXISTS (SELECT FROM interlock.definition_transitions t
                       WHERE (t.type, t.trigger) = (NEW.context->>'type', NEW.context->>'trigger')) THEN
        RAISE EXCEPTION '% of % cannot be narrowed to: %', NEW.context->>'trigger', NEW.context->>'type',
            array_to_string(wanted, ', ') USING ERRCODE = 'check_violation';
    END IF;
    SELECT format('%s of %s %s is open to: %s', t.trigger, t.type, t.version, array_to_string(t."by", ', ')) INTO wider
      FROM interlock.definition_transitions t
     WHERE (t.type, t.trigger) = (NEW.context->>'type', NEW.context->>'trigger')
       AND NOT (wanted <@ t."by" OR 'anyone' = ANY (t."by") AND wanted <@ ARRAY['holder', 'effect', 'machinery', 'operator'])
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%; a narrowing cannot give it to: %', wider, array_to_string(wanted, ', ')
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER narrower BEFORE INSERT ON interlock.workflow_instances FOR EACH ROW
    WHEN (NEW.workflow_type = 'narrowing') EXECUTE FUNCTION interlock.narrower();

CREATE FUNCTION interlock.narrows() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    other interlock.narrowings;
BEGIN
    IF NEW.to_state = 'in_force' AND NEW.from_state <> 'in_force' THEN
        SELECT n.* INTO other
          FROM interlock.workflow_instances i
          JOIN interlock.narrowings n ON (n.project, n.type, n.trigger) = (i.project, i.context->>'type', i.context->>'trigger')
         WHERE i.id = NEW.workflow_id;
        IF FOUND THEN
            RAISE EXCEPTION '% of % is narrowed already in %', other.trigger, other.type, other.project
                USING ERRCODE = 'check_violation', CONSTRAINT = 'judged', HINT = 'interlock definitions narrowed';
        END IF;
        INSERT INTO interlock.narrowings (project, type, trigger, open_to, narrowing_id)
        SELECT i.project, i.context->>'type', i.context->>'trigger', ARRAY(SELECT jsonb_array_elements_text(i.context->'to')), i.id
          FROM interlock.workflow_instances i WHERE i.id = NEW.workflow_id;
    ELSIF NEW.to_state = 'lifted' THEN
        DELETE FROM interlock.narrowings WHERE narrowing_id = NEW.workflow_id;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER narrows AFTER INSERT ON interlock.workflow_transitions FOR EACH ROW
    WHEN (NEW.workflow_type = 'narrowing') EXECUTE FUNCTION interlock.narrows();

-- What is left of a trigger's authorities: never more than its definition gives, also of a version that was recorded later.
CREATE FUNCTION interlock.narrowed(open_to text[], narrowed_to text[]) RETURNS text[] LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN 'anyone' = ANY (open_to) THEN narrowed_to
                ELSE ARRAY(SELECT unnest(open_to) INTERSECT SELECT unnest(narrowed_to)) END;
