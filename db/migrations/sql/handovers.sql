-- Instances that go on in another system (docs/spec/handover.md). A row follows its handover's events, and what it freezes moves no more.
CREATE TABLE interlock.handovers (
    workflow_id uuid        PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    handover_id uuid        NOT NULL UNIQUE,
    frozen_at   timestamptz NOT NULL
);

-- The hash of an instance's last event, or of its birth: all of its past.
CREATE FUNCTION interlock.head_of(i interlock.workflow_instances) RETURNS bytea LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE WHEN i.version = 0 THEN interlock.birth_hash(i)
                ELSE (SELECT t.hash FROM interlock.workflow_transitions t WHERE (t.workflow_id, t.seq) = (i.id, i.version)) END;
END $$;

-- Why an instance cannot be handed over; NULL: it can (HANDOVER-2, HANDOVER-3).
CREATE FUNCTION interlock.no_handover(i interlock.workflow_instances, subject uuid) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE
        WHEN i.workflow_type = 'schedule'
             OR i.workflow_type IN (SELECT interlock.of_engine_only()) AND i.workflow_type <> 'approval' AND i.definition_version NOT LIKE '0.%'
            THEN format('a %s is carried out or kept by Interlock itself', i.workflow_type)
        WHEN i.workflow_type = 'approval' AND NOT EXISTS (
                SELECT FROM interlock.trigger_requests r WHERE (r.held_by, r.workflow_id, r.status) = (i.id, subject, 'waiting'))
            THEN 'an approval is handed over with the instance whose trigger it holds'
        WHEN EXISTS (SELECT FROM interlock.definition_states s
                      WHERE (s.type, s.version, s.state) = (i.workflow_type, i.definition_version, i.current_state) AND s.terminal)
            THEN format('it ended in %s', i.current_state)
        ELSE COALESCE(
            (SELECT format('%s freezes it already', h.handover_id) FROM interlock.handovers h WHERE h.workflow_id = i.id),
            (SELECT format('effect %s (%s) is being carried out and will tell its outcome: wait until it has', e.id, e.name)
               FROM interlock.effects e
              WHERE e.workflow_id = i.id AND e.status = 'leased' AND num_nonnulls(e.done_trigger, e.failed_trigger) > 0 LIMIT 1),
            (SELECT format('request %s (%s) is dead: redrive it or quarantine it first', r.request_id, r.trigger)
               FROM interlock.trigger_requests r
              WHERE r.workflow_id = i.id AND r.status = 'dead' AND r.result->>'was' IS DISTINCT FROM 'dead' LIMIT 1))
    END;
END $$;

-- HANDOVER-1: a row is what its handover's history says, and freezes the instance where the terms say that it stands. It is locked, so that
-- a round that decides for it ends before.
CREATE FUNCTION interlock.handover_in_history() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    its     CONSTANT interlock.handovers := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    said    CONSTANT interlock.workflow_instances := (SELECT i FROM interlock.workflow_instances i WHERE i.id = its.handover_id AND i.workflow_type = 'handover');
    entered CONSTANT text := (interlock.last_event(said.id)).to_state;
    frozen  interlock.workflow_instances;
    why     text;
BEGIN
    IF entered IS DISTINCT FROM (CASE TG_OP WHEN 'INSERT' THEN 'frozen' WHEN 'DELETE' THEN 'returned' END)
       OR its.workflow_id::text IS DISTINCT FROM said.context->>'instance' THEN
        RAISE EXCEPTION 'the handover of % is not what its history says', its.workflow_id
            USING ERRCODE = 'check_violation', HINT = 'interlock definitions handover';
    END IF;
    IF TG_OP = 'INSERT' THEN
        SELECT * INTO frozen FROM interlock.workflow_instances i WHERE i.id = its.workflow_id FOR NO KEY UPDATE;
        why := CASE WHEN frozen.id IS NULL THEN 'it does not exist'
                    WHEN (frozen.version, encode(interlock.head_of(frozen), 'hex')) IS DISTINCT FROM ((said.context->>'at')::integer, said.context->>'head')
                        THEN format('it is not at version %s, or its history is another', said.context->>'at')
                    ELSE interlock.no_handover(frozen, (said.context->>'subject')::uuid) END;
        IF why IS NOT NULL THEN
            RAISE EXCEPTION 'instance % cannot be handed over: %', its.workflow_id, why
                USING ERRCODE = 'check_violation', CONSTRAINT = 'judged';
        END IF;
    END IF;
    RETURN its;
END $$;

CREATE TRIGGER handover_in_history BEFORE INSERT OR UPDATE OR DELETE ON interlock.handovers FOR EACH ROW
    EXECUTE FUNCTION interlock.handover_in_history();

-- What was accepted for an instance, and asked for by it, is held with it, comes back with it, or has gone with it (HANDOVER-4, HANDOVER-9, HANDOVER-10).
CREATE FUNCTION interlock.moved_handover(new interlock.workflow_transitions) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    its    CONSTANT uuid := (SELECT (context->>'instance')::uuid FROM interlock.workflow_instances WHERE id = new.workflow_id);
    reason CONSTANT jsonb := jsonb_build_object('code', 'handed_over', 'handover', new.workflow_id);
    since  timestamptz;
BEGIN
    IF new.to_state = 'frozen' THEN
        INSERT INTO interlock.handovers (workflow_id, handover_id, frozen_at) VALUES (its, new.workflow_id, new.created_at);
        UPDATE interlock.trigger_requests r
           SET status = 'waiting', result = reason || jsonb_build_object('message', 'its instance is frozen, to go on in another system')
         WHERE r.workflow_id = its AND r.status IN ('pending', 'scheduled');
        UPDATE interlock.effects e SET status = 'cancelled', finished_at = now(), result = reason
         WHERE e.workflow_id = its AND e.status = 'pending';
    ELSIF new.to_state = 'returned' THEN
        DELETE FROM interlock.handovers h WHERE h.handover_id = new.workflow_id RETURNING h.frozen_at INTO since;
        UPDATE interlock.trigger_requests r
           SET status = 'scheduled', result = NULL,
               not_before = CASE r.origin WHEN 'timer' THEN GREATEST(now(), now() + (r.not_before - since)) ELSE r.not_before END
         WHERE r.workflow_id = its AND r.status = 'waiting' AND r.result->>'handover' = new.workflow_id::text;
        -- Not now(): what was accepted while this transaction waited is due, too.
        UPDATE interlock.trigger_requests r SET status = 'pending'
         WHERE r.workflow_id = its AND r.status = 'scheduled' AND r.not_before <= clock_timestamp();
        UPDATE interlock.effects e SET status = 'pending', finished_at = NULL, result = NULL, not_before = GREATEST(now(), e.not_before)
         WHERE e.workflow_id = its AND e.status = 'cancelled' AND e.result->>'handover' = new.workflow_id::text;
    ELSE
        UPDATE interlock.trigger_requests r
           SET status = 'superseded', finished_at = now(),
               result = reason || jsonb_build_object('message', 'it has gone with its instance to another system')
         WHERE r.workflow_id = its AND r.status = 'waiting';
    END IF;
END $$;
