-- Who may override, how a definition is changed while it is in use, what is stuck, and what is counted.

-- Overrides ----------------------------------------------------------------------------------------------------------------
-- What an override must say. `operator` in an event's metadata is what makes it one (EVENT-6).

CREATE FUNCTION interlock.authorised() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    who text;
BEGIN
    IF NOT NEW.metadata ?| ARRAY['operator', 'override'] THEN
        RETURN NEW;
    END IF;
    who := NEW.metadata->>'operator';
    IF who IS NULL OR who IS DISTINCT FROM NEW.triggered_by OR NOT interlock.is_operator(who) THEN
        RAISE EXCEPTION 'override of % by %: not an operator', NEW.workflow_id, COALESCE(who, '(nobody)')
            USING ERRCODE = 'insufficient_privilege', HINT = 'interlock operator list; interlock operator grant NAME';
    END IF;
    IF COALESCE(NEW.metadata->>'reason', '') = '' OR NEW.severity NOT IN ('warning', 'critical') THEN
        RAISE EXCEPTION 'override of % by % must give a reason, and be a warning', NEW.workflow_id, who
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER authorised BEFORE INSERT ON interlock.workflow_transitions FOR EACH ROW
    EXECUTE FUNCTION interlock.authorised();

-- Migration ---------------------------------------------------------------------------------------------------------------
-- A move to another version is an event like any other: in the chain, under the partition's lock, refused where it does not fit.
-- Its trigger is no name that a definition can have. It is written before the instance's row changes. A state that the new
-- version has stays what it is; nothing is ended or begun again this way: that is what triggers are for.

CREATE FUNCTION interlock.check_migration(event interlock.workflow_transitions, instance interlock.workflow_instances, stood text, under text)
    RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    refused text;
BEGIN
    IF NOT interlock.is_operator(event.triggered_by) THEN
        RAISE EXCEPTION 'migration of % by %: not an operator', event.workflow_id, COALESCE(event.triggered_by, '(nobody)')
            USING ERRCODE = 'insufficient_privilege', HINT = 'interlock operator list; interlock operator grant NAME';
    END IF;
    refused := CASE
        WHEN event.from_state <> stood THEN 'it stands in ' || stood
        WHEN event.metadata->>'from_version' IS DISTINCT FROM under OR event.definition_version = under
            THEN 'it is under version ' || under
        WHEN COALESCE(event.metadata->>'reason', '') = '' THEN 'no reason is given'
        WHEN EXISTS (SELECT FROM interlock.removed_versions() r
                      WHERE r.type = instance.workflow_type AND r.version = event.definition_version)
            THEN 'the new version was removed'
        WHEN (SELECT terminal FROM interlock.definition_states
               WHERE type = instance.workflow_type AND version = under AND state = stood)
            THEN stood || ' is terminal'
        WHEN (SELECT terminal FROM interlock.definition_states
               WHERE type = instance.workflow_type AND version = event.definition_version AND state = event.to_state)
             IS DISTINCT FROM false
            THEN 'the new version has no such state, or ends there'
        WHEN event.to_state <> stood
             AND EXISTS (SELECT FROM interlock.definition_states
                          WHERE type = instance.workflow_type AND version = event.definition_version AND state = stood)
            THEN 'the new version has ' || stood || ' too'
        WHEN (event.definition_version LIKE '0.%') <> (under LIKE '0.%')
             AND EXISTS (SELECT FROM interlock.kinds() WHERE type = instance.workflow_type)
            THEN 'versions 0.x have no typed row'
    END;
    IF refused IS NOT NULL THEN
        RAISE EXCEPTION 'illegal migration of % % (%) from % to version %, % → %: %',
            instance.workflow_type, instance.entity_id, event.workflow_id, under, event.definition_version,
            event.from_state, event.to_state, refused
            USING ERRCODE = 'check_violation', HINT = 'interlock definitions migrate TYPE --from V1 --to V2 --dry-run';
    END IF;
END $$;

-- What is stuck, and counters -------------------------------------------------------------------------------------------------
-- What the last look found stuck (RECOVER-3). A projection that the sweep replaces; nothing is decided by it.
CREATE TABLE interlock.stuck_entities (
    workflow_id   uuid         PRIMARY KEY,
    version       integer      NOT NULL,
    workflow_type varchar(50)  NOT NULL,
    entity_id     varchar(100) NOT NULL,
    project       varchar(100) NOT NULL,
    state         varchar(100) NOT NULL,
    since         timestamptz  NOT NULL,
    reason        text         NOT NULL,
    command       text         NOT NULL,
    found_at      timestamptz  NOT NULL DEFAULT now()
);

-- Every counter, bucket and state's population: one row a series, its labels' values in the order the metric names them.
-- Only whoever holds the relay's cursor `metrics` writes here, so nobody waits for anybody.
CREATE TABLE interlock.metric_values (
    name   varchar(80)      NOT NULL,
    labels text[]           NOT NULL,
    value  double precision NOT NULL,
    PRIMARY KEY (name, labels)
) WITH (fillfactor = 50);  -- room for heap-only updates

-- What history does not record (births, refusals, retries, repeated requests), in the commit in which it happened:
-- insert-only, added up by the sweep `metrics`. Whoever reads adds what waits here.
CREATE TABLE interlock.metric_deltas (
    id     bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name   varchar(80)      NOT NULL,
    labels text[]           NOT NULL,
    value  double precision NOT NULL
);

-- One row a statement and state, however many are born or leave.
CREATE FUNCTION interlock.count_instances() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO interlock.metric_deltas (name, labels, value)
    SELECT 'entity_state', ARRAY[c.workflow_type, c.current_state],
           CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END
      FROM changed c
     GROUP BY c.workflow_type, c.current_state;
    RETURN NULL;
END $$;

CREATE TRIGGER counted_birth AFTER INSERT ON interlock.workflow_instances REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION interlock.count_instances();

CREATE TRIGGER counted_departure AFTER DELETE ON interlock.workflow_instances REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION interlock.count_instances();

INSERT INTO interlock.relay_cursors (name, xid, position) VALUES ('metrics', '0', 0);
