-- Counters that the relay keeps.

-- Every counter, bucket and state's population: one row a series, its labels' values in the order the metric names them.
-- Only whoever holds the relay's cursor `metrics` writes here, so nobody waits for anybody.
CREATE TABLE metric_values (
    name   varchar(80)      NOT NULL,
    labels text[]           NOT NULL,
    value  double precision NOT NULL,
    PRIMARY KEY (name, labels)
) WITH (fillfactor = 50);  -- room for heap-only updates

-- What history does not tell (births, refusals, retries, repeated requests), in the commit in which it happened:
-- insert-only, added up by the sweep `metrics`. Whoever reads adds what waits here.
CREATE TABLE metric_deltas (
    id     bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name   varchar(80)      NOT NULL,
    labels text[]           NOT NULL,
    value  double precision NOT NULL
);

-- One row a statement and state, however many are born or leave.
CREATE FUNCTION interlock_count_births() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO metric_deltas (name, labels, value)
    SELECT 'entity_state', ARRAY[c.workflow_type, c.current_state], count(*) FROM changed c
     GROUP BY c.workflow_type, c.current_state;
    RETURN NULL;
END $$;

CREATE FUNCTION interlock_count_departures() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO metric_deltas (name, labels, value)
    SELECT 'entity_state', ARRAY[c.workflow_type, c.current_state], -count(*) FROM changed c
     GROUP BY c.workflow_type, c.current_state;
    RETURN NULL;
END $$;

CREATE TRIGGER counted_birth AFTER INSERT ON workflow_instances REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION interlock_count_births();
CREATE TRIGGER counted_departure AFTER DELETE ON workflow_instances REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION interlock_count_departures();
-- As all that stands on this table: session_replication_role = replica must not let counts and rows drift apart.
ALTER TABLE workflow_instances ENABLE ALWAYS TRIGGER counted_birth;
ALTER TABLE workflow_instances ENABLE ALWAYS TRIGGER counted_departure;

-- Those there are already: where they were born. The relay then counts their moves from the first one on.
INSERT INTO metric_deltas (name, labels, value)
SELECT 'entity_state', ARRAY[i.workflow_type, d.initial_state], count(*)
  FROM workflow_instances i
  JOIN workflow_definitions d ON d.type = i.workflow_type AND d.version = i.definition_version
 GROUP BY i.workflow_type, d.initial_state;
INSERT INTO relay_cursors (name, xid, position) VALUES ('metrics', '0', 0) ON CONFLICT DO NOTHING;
