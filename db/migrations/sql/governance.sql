-- What gives power is an instance with a history (docs/spec/governance.md). The tables here are projections of these instances, for
-- what must be looked up quickly; each row always equals what its instance's history gives, and nothing else can be written.

-- Operators ----------------------------------------------------------------------------------------------------------------
-- Who may override, since when, granted by whom, and why. A row is one grant.
CREATE TABLE interlock.operators (
    grant_id   uuid         PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    state      varchar(20)  NOT NULL CHECK (state IN ('proposed', 'active', 'revoked', 'lapsed')),
    name       varchar(100) NOT NULL CHECK (name <> ''),
    granted_by varchar(100) NOT NULL CHECK (granted_by <> ''),
    reason     text,
    since      timestamptz,
    until      timestamptz,  -- from then on it gives no right, whatever its state
    ended_at   timestamptz,
    revoked_by varchar(100),
    CHECK ((state = 'proposed') = (since IS NULL)),
    CHECK ((state IN ('revoked', 'lapsed')) = (ended_at IS NOT NULL)),
    CHECK ((state = 'revoked') = (revoked_by IS NOT NULL))
);
CREATE INDEX operators_name ON interlock.operators (name) WHERE state = 'active';

-- A grant's row, from its instance's history. Its terms are what its first event holds in its hash.
CREATE FUNCTION interlock.recorded_grant(id uuid) RETURNS interlock.operators LANGUAGE sql STABLE AS $$
    SELECT i.id, COALESCE(last.to_state, 'proposed'), terms->>'name', COALESCE(first.triggered_by, i.created_by),
           first.metadata->>'reason', first.created_at, (terms->>'until')::timestamptz,
           CASE WHEN last.to_state IN ('revoked', 'lapsed') THEN last.created_at END,
           CASE WHEN last.to_state = 'revoked' THEN last.triggered_by END
      FROM interlock.workflow_instances i
      LEFT JOIN interlock.workflow_transitions first ON first.workflow_id = i.id AND first.seq = 1
     CROSS JOIN interlock.last_event(i.id) last
     CROSS JOIN LATERAL (SELECT COALESCE(first.metadata->'terms', i.context)) AS said (terms)
     WHERE i.id = recorded_grant.id AND i.workflow_type = 'operator_grant'
$$;

-- Why a grant's last move is not to be; NULL: it may be. Who grants or revokes is an operator: that is the transitions' own authority.
-- Interlock grants only where none is left.
CREATE FUNCTION interlock.grant_refused(its interlock.operators, event interlock.workflow_transitions) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF event.trigger = 'revoke' THEN  -- one at a time: two who revoke each other would leave nobody
        LOCK TABLE interlock.operators IN SHARE ROW EXCLUSIVE MODE;
    END IF;
    RETURN CASE
        WHEN event.trigger IN ('grant', 'revoke') AND COALESCE(event.metadata->>'reason', '') = '' THEN 'no reason is given'
        WHEN event.trigger = 'grant' AND its.until <= event.created_at THEN 'it would have ended'
        WHEN event.trigger = 'grant' AND event.authority <> 'operator' AND EXISTS (
                 SELECT FROM interlock.operators o
                   JOIN interlock.workflow_transitions t ON t.workflow_id = o.grant_id AND t.seq = 1 AND t.xid <> event.xid
                  WHERE o.state = 'active' AND (o.until IS NULL OR o.until > clock_timestamp()))
            THEN 'there are operators, and only one of them can grant it'
        WHEN event.trigger = 'revoke' AND its.until IS NULL AND NOT EXISTS (
                 SELECT FROM interlock.operators WHERE state = 'active' AND until IS NULL AND grant_id <> its.grant_id)
            THEN 'it is the only grant without an end'
        WHEN event.trigger = 'lapse' AND (its.until <= event.created_at) IS NOT TRUE THEN 'its end has not come'
    END;
END $$;

-- Not now(): that is when the transaction began, and a grant may have ended since.
CREATE FUNCTION interlock.is_operator(who text) RETURNS boolean LANGUAGE sql STABLE
    RETURN EXISTS (SELECT FROM interlock.operators WHERE name = who AND state = 'active' AND (until IS NULL OR until > clock_timestamp()));

-- The right of an operator: the grant that is in force.
CREATE FUNCTION interlock.grant_of(who text) RETURNS text LANGUAGE sql STABLE
    RETURN (SELECT 'grant:' || grant_id FROM interlock.operators
             WHERE name = who AND state = 'active' AND (until IS NULL OR until > clock_timestamp()) ORDER BY since, grant_id LIMIT 1);

-- Deprecation (VERSION-3) --------------------------------------------------------------------------------------------------
-- What is not to be used any more: a version, or a state or trigger of one. Whoever uses it is warned, and counted. A version is
-- removed once its time is over and nothing lives under it.

CREATE TABLE interlock.deprecations (
    deprecation_id      uuid         PRIMARY KEY REFERENCES interlock.workflow_instances (id),
    state               varchar(20)  NOT NULL
                        CHECK (state IN ('proposed', 'announced', 'undone', 'removal_proposed', 'removed')),
    type                varchar(50)  NOT NULL,
    version             varchar(20)  NOT NULL,
    kind                varchar(10)  NOT NULL CHECK (kind IN ('version', 'state', 'trigger')),
    name                varchar(100) NOT NULL CHECK ((kind = 'version') = (name = '')),
    deprecated_by       varchar(100) NOT NULL CHECK (deprecated_by <> ''),
    reason              text,
    guide               text         NOT NULL,
    deprecated_at       timestamptz,
    remove_after        timestamptz,
    removal_proposed_by varchar(100),
    removed_by          varchar(100),
    removed_at          timestamptz,
    CHECK ((state = 'proposed') = (deprecated_at IS NULL)),
    CHECK ((state IN ('removal_proposed', 'removed')) = (removal_proposed_by IS NOT NULL)),
    CHECK ((state = 'removed') = (removed_at IS NOT NULL)),
    FOREIGN KEY (type, version) REFERENCES interlock.workflow_definitions (type, version)
);
CREATE UNIQUE INDEX deprecations_part ON interlock.deprecations (type, version, kind, name)
    WHERE state IN ('announced', 'removal_proposed', 'removed');  -- one at a time; what was undone may be announced again

-- Counted in the commit of the move, in a row of the move's partition: nobody waits for anybody.
CREATE TABLE interlock.deprecation_uses (
    deprecation_id uuid        NOT NULL REFERENCES interlock.deprecations (deprecation_id),
    partition      smallint    NOT NULL,
    uses           bigint      NOT NULL CHECK (uses > 0),
    last_used_at   timestamptz NOT NULL,
    PRIMARY KEY (deprecation_id, partition)
);

-- A deprecation's row, from its instance's history.
CREATE FUNCTION interlock.recorded_deprecation(id uuid) RETURNS interlock.deprecations LANGUAGE sql STABLE AS $$
    SELECT i.id, COALESCE(last.to_state, 'proposed'), terms->>'type', terms->>'version', terms->>'kind',
           COALESCE(terms->>'name', ''), COALESCE(first.triggered_by, i.created_by), first.metadata->>'reason',
           COALESCE(terms->>'guide', ''), first.created_at,
           GREATEST(first.created_at,  -- VERSION-3
                    COALESCE((terms->>'remove_after')::timestamptz, first.created_at + interval '30 days')),
           proposed.triggered_by, CASE WHEN last.to_state = 'removed' THEN last.triggered_by END,
           CASE WHEN last.to_state = 'removed' THEN last.created_at END
      FROM interlock.workflow_instances i
      LEFT JOIN interlock.workflow_transitions first ON first.workflow_id = i.id AND first.seq = 1
     CROSS JOIN interlock.last_event(i.id) last
      LEFT JOIN LATERAL (SELECT * FROM interlock.workflow_transitions t
                          WHERE t.workflow_id = i.id AND t.trigger = 'propose_removal'
                            AND last.to_state IN ('removal_proposed', 'removed') ORDER BY t.seq DESC LIMIT 1) proposed ON true
     CROSS JOIN LATERAL (SELECT COALESCE(first.metadata->'terms', i.context)) AS said (terms)
     WHERE i.id = recorded_deprecation.id AND i.workflow_type = 'deprecation'
$$;

CREATE FUNCTION interlock.lives_under(of_type text, of_version text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT count(*) FROM interlock.workflow_instances i
      JOIN interlock.definition_states s ON s.type = i.workflow_type AND s.version = i.definition_version
                              AND s.state = i.current_state
     WHERE i.workflow_type = of_type AND i.definition_version = of_version AND NOT s.terminal
$$;

-- As `grant_refused`. Operators decide: that is the transitions' own authority. Interlock announces what the code marks.
CREATE FUNCTION interlock.deprecation_refused(its interlock.deprecations, event interlock.workflow_transitions) RETURNS text
    LANGUAGE plpgsql AS $$
BEGIN
    IF event.trigger = 'approve_removal' THEN  -- nobody is born while this looks for the living
        LOCK TABLE interlock.workflow_instances IN SHARE ROW EXCLUSIVE MODE;
    END IF;
    RETURN CASE
        WHEN COALESCE(event.metadata->>'reason', '') = '' AND event.id IS NOT NULL THEN 'no reason is given'
        WHEN event.trigger = 'announce' AND NOT (CASE its.kind
                 WHEN 'version' THEN true
                 WHEN 'state' THEN EXISTS (SELECT FROM interlock.definition_states
                                            WHERE type = its.type AND version = its.version AND state = its.name)
                 ELSE EXISTS (SELECT FROM interlock.definition_transitions
                               WHERE type = its.type AND version = its.version AND trigger = its.name)
             END) THEN 'it has none of that name'
        WHEN event.trigger = 'announce' AND EXISTS (
                 SELECT FROM interlock.deprecations d
                  WHERE (d.type, d.version, d.kind, d.name) = (its.type, its.version, its.kind, its.name)
                    AND d.state IN ('announced', 'removal_proposed', 'removed') AND d.deprecation_id <> its.deprecation_id)
            THEN 'it is deprecated already'
        WHEN event.trigger = 'announce' AND event.authority <> 'operator' AND its.kind = 'version'
            THEN 'the code marks only states and triggers'
        WHEN event.trigger = 'announce' AND its.remove_after < its.deprecated_at + interval '30 days'
             AND interlock.lives_under(its.type, its.version) > 0
            THEN 'instances live under it, so the notice is at least 30 days'
        WHEN event.trigger IN ('propose_removal', 'approve_removal') AND its.kind <> 'version' THEN 'only a version is removed'
        WHEN event.trigger = 'approve_removal' THEN CASE
            WHEN its.removed_by = its.removal_proposed_by THEN 'another operator must approve it than who proposed it'
            WHEN its.remove_after > event.created_at THEN 'not before ' || its.remove_after
            WHEN interlock.lives_under(its.type, its.version) > 0 THEN 'live instances use it'
            WHEN event.metadata->'retired' IS DISTINCT FROM 'true'  -- the code has the type no longer
                 AND NOT EXISTS (SELECT FROM interlock.workflow_definitions d
                                  WHERE d.type = its.type AND string_to_array(d.version, '.')::integer[]
                                                              > string_to_array(its.version, '.')::integer[])
                THEN 'it is the newest version, which every new instance gets'
        END
    END;
END $$;

CREATE FUNCTION interlock.removed_versions() RETURNS TABLE (type varchar, version varchar, removed_at timestamptz)
    LANGUAGE sql STABLE AS $$
    SELECT type, version, removed_at FROM interlock.deprecations WHERE state = 'removed'
$$;

-- Once a statement, however many are born in it.
CREATE FUNCTION interlock.check_births() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    gone record;
BEGIN
    SELECT r.* INTO gone
      FROM interlock.removed_versions() r
     WHERE EXISTS (SELECT FROM changed c WHERE c.workflow_type = r.type AND c.definition_version = r.version)
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a % % cannot begin: this version was removed at %. Name another; without one, the newest is used', gone.type, gone.version, gone.removed_at
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER version_stands AFTER INSERT ON interlock.workflow_instances REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION interlock.check_births();
