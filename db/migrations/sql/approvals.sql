-- What approvals are held to (docs/spec/delivery.md, APPROVAL-1 to APPROVAL-6): their terms, their votes, and what they let go.

CREATE FUNCTION interlock.are_names(list jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE
    RETURN jsonb_typeof(list) = 'array'
           AND (SELECT COALESCE(bool_and(jsonb_typeof(each) = 'string' AND interlock.is_name(each #>> '{}')), true)
                  FROM jsonb_array_elements(CASE jsonb_typeof(list) WHEN 'array' THEN list ELSE '[]' END) AS each);

-- Whether an approval can be decided by its terms (APPROVAL-2); they are fixed at its birth.
CREATE FUNCTION interlock.sound_terms(terms jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE
    RETURN (NOT terms ? 'quorum' OR jsonb_typeof(terms->'quorum') = 'number' AND terms->>'quorum' ~ '^[1-9][0-9]{0,8}$')
           AND (NOT terms ? 'author' OR jsonb_typeof(terms->'author') = 'string' AND interlock.is_name(terms->>'author'))
           AND (NOT terms ? 'deciders' OR interlock.are_names(terms->'deciders'));

-- Whether the definition of what an approval is about asks for such a one, of the instance as it stood then: for its quorum and
-- deciders; and whether its author is the one that the instance names, or else who fired the trigger.
CREATE FUNCTION interlock.asked_for(terms jsonb) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM interlock.every_instance i
          JOIN interlock.workflow_definitions d
            ON d.type = i.workflow_type
               AND d.version = COALESCE((SELECT t.definition_version FROM interlock.every_transition t
                                          WHERE t.workflow_id = i.id
                                            AND t.seq = substring(terms->>'subject_version' FROM '^[0-9]{1,9}$')::integer),
                                        i.born_version)
         CROSS JOIN jsonb_array_elements(d.body->'rules') AS rule
         WHERE i.id = substring(terms->>'subject_id' FROM '^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$')::uuid
           AND rule->'trigger' = terms->'trigger'
           AND rule->'approval' = jsonb_build_object('quorum', terms->'quorum', 'deciders', terms->'deciders')
           AND terms->>'author' = CASE WHEN jsonb_typeof(i.context->'author') = 'string' AND interlock.is_name(i.context->>'author')
                                       THEN i.context->>'author' ELSE terms->>'requested_by' END);
END $$;

-- Who has approved, of those who may: their names in order. An operator's override is no vote.
CREATE FUNCTION interlock.voters(approval uuid, under text, context jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT COALESCE(jsonb_agg(w.by ORDER BY w.by COLLATE "C"), '[]')
              FROM (SELECT DISTINCT t.triggered_by AS by FROM interlock.every_transition t
                     WHERE t.workflow_id = approval AND t.trigger = 'approve' AND NOT t.metadata ? 'override') w
             WHERE interlock.no_decider(w.by, 'approve', 'approval', under, context) IS NULL);
END $$;

-- What is wrong with the event that decided an approval; NULL: nothing (APPROVAL-3, APPROVAL-6).
CREATE FUNCTION interlock.not_decided(
    approval uuid, under text, entered text, said jsonb, context jsonb) RETURNS text LANGUAGE sql STABLE
    RETURN (SELECT CASE
                WHEN said->'terms' IS DISTINCT FROM
                     (SELECT COALESCE(jsonb_object_agg(key, value), '{}') FROM jsonb_each(context)
                       WHERE key IN ('subject', 'subject_id', 'subject_version', 'trigger', 'request_id', 'author', 'quorum', 'deciders'))
                    THEN format('it says other terms than its approval has: %s', COALESCE(said->>'terms', 'none'))
                WHEN entered = 'approved' AND said->'votes' IS DISTINCT FROM v.names
                    THEN format('it says %s approved it; who may and did: %s', COALESCE(said->>'votes', 'nobody'), v.names)
                WHEN entered = 'approved' AND NOT said ? 'override'
                     AND jsonb_array_length(v.names) < COALESCE(context->>'quorum', '1')::integer
                    THEN format('%s votes of those who may, and %s are needed', jsonb_array_length(v.names), COALESCE(context->>'quorum', '1'))
            END
              FROM (SELECT interlock.voters(approval, under, context)) AS v (names));

-- The version of an instance for which an approval was asked (APPROVAL-5), or to which it was migrated from there: a migration,
-- which keeps what is held, is no move.
CREATE FUNCTION interlock.held_for(approval uuid) RETURNS integer LANGUAGE sql STABLE
    RETURN (SELECT COALESCE(min(t.seq) FILTER (WHERE t.trigger <> 'definition.migrate') - 1, max(t.seq),
                            (a.context->>'subject_version')::integer)
              FROM interlock.workflow_instances a
              LEFT JOIN interlock.workflow_transitions t
                ON t.workflow_id = (a.context->>'subject_id')::uuid AND t.seq > (a.context->>'subject_version')::integer
             WHERE a.id = approval GROUP BY a.id, a.context);

-- What an approval holds is let go by its approval only, for the version in which it was held. From then on that is its proof.
CREATE FUNCTION interlock.approved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.granted AND NOT OLD.granted THEN
        IF NOT EXISTS (SELECT FROM interlock.workflow_instances a
                        WHERE a.id = OLD.held_by AND a.workflow_type = 'approval' AND a.current_state = 'approved'
                          AND a.context->>'request_id' = OLD.request_id
                          AND a.context->>'subject_id' = OLD.workflow_id::text
                          AND (a.context->>'trigger', a.context->>'requested_by') = (OLD.trigger, OLD.triggered_by)
                          AND interlock.asked_for(a.context)
                          AND interlock.held_for(a.id) = NEW.bound_version) THEN
            RAISE EXCEPTION 'request % is not approved', OLD.request_id
                USING ERRCODE = 'insufficient_privilege', CONSTRAINT = 'authority',
                      HINT = 'interlock fire APPROVAL approve --by WHO';
        END IF;
        NEW.proof := concat_ws(' ', 'approval:' || OLD.held_by, 'token:' || interlock.token_of(OLD.proof));
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER approved BEFORE UPDATE OF granted ON interlock.trigger_requests
    FOR EACH ROW EXECUTE FUNCTION interlock.approved();
