-- The archive, and what is stuck.

-- What an instance was asked to do: for whoever looks at it, and so that one that is archived need not be looked for in
-- every request there is.
CREATE INDEX trigger_requests_instance ON trigger_requests (workflow_id);
CREATE INDEX effects_dead ON effects (workflow_id) WHERE status = 'dead';

-- What the last look found stuck (SSOT 5.1). A projection that the sweep replaces; nothing is decided by it.
CREATE TABLE stuck_entities (
    workflow_id   uuid         PRIMARY KEY,
    version       integer      NOT NULL,
    workflow_type varchar(50)  NOT NULL,
    entity_id     varchar(100) NOT NULL,
    project_id    uuid         NOT NULL,
    state         varchar(100) NOT NULL,
    since         timestamptz  NOT NULL,
    reason        text         NOT NULL,
    command       text         NOT NULL,
    found_at      timestamptz  NOT NULL DEFAULT now()
);

-- The archive: finished instances with their history, moved whole, in one transaction --------------------------------------
-- A row leaves its table only when the very same row stands in the archive; the archive takes only what stands in its
-- table, whole histories of ended instances, and keeps it for ever. Raw SQL is held to all of it.

CREATE SCHEMA archive;

CREATE TABLE archive.workflow_instances (
    LIKE workflow_instances,
    archived_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id),
    UNIQUE (project_id, workflow_type, entity_id)
);
CREATE INDEX workflow_instances_entity ON archive.workflow_instances (entity_id);

CREATE TABLE archive.workflow_transitions (
    LIKE workflow_transitions,
    PRIMARY KEY (workflow_id, seq),
    FOREIGN KEY (workflow_id) REFERENCES archive.workflow_instances (id)
);
CREATE UNIQUE INDEX workflow_transitions_commit_order ON archive.workflow_transitions (xid, position);

CREATE TABLE archive.workflow_links (
    LIKE workflow_links,
    PRIMARY KEY (source_id, role, target_id)
);
CREATE INDEX workflow_links_target ON archive.workflow_links (target_id);

-- Rows of typed tables and what belongs to them, as JSON: they are read, never computed with.
CREATE TABLE archive.records (
    kind        varchar(50) NOT NULL,
    key         text        NOT NULL,
    workflow_id uuid        NOT NULL REFERENCES archive.workflow_instances (id),
    body        jsonb       NOT NULL,
    PRIMARY KEY (kind, key)
);
CREATE INDEX records_workflow ON archive.records (workflow_id);

-- Where the sweep goes on: it passes over all that has ended, a part each time.
CREATE TABLE archive.progress (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    after    uuid
);
INSERT INTO archive.progress DEFAULT VALUES;

CREATE VIEW every_instance AS
    SELECT id, workflow_type, definition_version, current_state, version, entity_id, project_id, context, error, retry_count,
           created_by, created_at, updated_at, NULL::timestamptz AS archived_at
      FROM workflow_instances
    UNION ALL
    SELECT id, workflow_type, definition_version, current_state, version, entity_id, project_id, context, error, retry_count,
           created_by, created_at, updated_at, archived_at
      FROM archive.workflow_instances;

CREATE VIEW every_transition AS
    SELECT id, workflow_id, seq, workflow_type, definition_version, from_state, to_state, trigger, triggered_by, request_id,
           severity, metadata, created_at, prev_hash, hash, xid, position
      FROM workflow_transitions
    UNION ALL
    SELECT id, workflow_id, seq, workflow_type, definition_version, from_state, to_state, trigger, triggered_by, request_id,
           severity, metadata, created_at, prev_hash, hash, xid, position
      FROM archive.workflow_transitions;

CREATE FUNCTION interlock_birth_hash(i archive.workflow_instances) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN sha256(
        interlock_field(i.id::text) || interlock_field(i.workflow_type) || interlock_field(i.entity_id)
        || interlock_field(i.project_id::text) || interlock_field(i.created_by)
        || interlock_field(interlock_micros(i.created_at))
    );

CREATE VIEW every_birth AS
    SELECT id, interlock_birth_hash(i) AS hash FROM workflow_instances i
    UNION ALL
    SELECT id, interlock_birth_hash(i) FROM archive.workflow_instances i;

-- What the archive takes.

CREATE FUNCTION archive.takes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    offered jsonb := to_jsonb(NEW) - 'archived_at';
    stands  boolean;
BEGIN
    CASE TG_TABLE_NAME
        WHEN 'workflow_instances' THEN
            SELECT to_jsonb(i) = offered AND s.terminal INTO stands
              FROM public.workflow_instances i
              JOIN definition_states s ON s.type = i.workflow_type AND s.version = i.definition_version
                                      AND s.state = i.current_state
             WHERE i.id = NEW.id;
            NEW.archived_at := now();
        WHEN 'workflow_transitions' THEN
            SELECT to_jsonb(t) = offered INTO stands FROM public.workflow_transitions t
             WHERE t.workflow_id = NEW.workflow_id AND t.seq = NEW.seq;
        WHEN 'workflow_links' THEN
            SELECT to_jsonb(l) = offered INTO stands FROM public.workflow_links l
             WHERE (l.source_id, l.role, l.target_id) = (NEW.source_id, NEW.role, NEW.target_id);
    END CASE;
    IF NOT COALESCE(stands, false) THEN
        RAISE EXCEPTION 'the archive takes only what has ended and stands in %, as it stands there', TG_TABLE_NAME
            USING ERRCODE = 'restrict_violation', HINT = 'interlock archive run';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION archive.moved_whole() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM public.workflow_instances WHERE id = NEW.id)
       OR (SELECT count(*) FROM archive.workflow_transitions WHERE workflow_id = NEW.id) <> NEW.version THEN
        RAISE EXCEPTION 'instance % is archived in part', NEW.id
            USING ERRCODE = 'restrict_violation', HINT = 'interlock archive run moves an instance with its whole history';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER takes BEFORE INSERT ON archive.workflow_instances FOR EACH ROW EXECUTE FUNCTION archive.takes();
CREATE TRIGGER takes BEFORE INSERT ON archive.workflow_transitions FOR EACH ROW EXECUTE FUNCTION archive.takes();
CREATE TRIGGER takes BEFORE INSERT ON archive.workflow_links FOR EACH ROW EXECUTE FUNCTION archive.takes();
CREATE CONSTRAINT TRIGGER moved_whole AFTER INSERT ON archive.workflow_instances
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION archive.moved_whole();
ALTER TABLE archive.workflow_instances ENABLE ALWAYS TRIGGER takes, ENABLE ALWAYS TRIGGER moved_whole;
ALTER TABLE archive.workflow_transitions ENABLE ALWAYS TRIGGER takes;
ALTER TABLE archive.workflow_links ENABLE ALWAYS TRIGGER takes;

SELECT interlock_protect(format('archive.%I', kept)::regclass)
  FROM unnest(ARRAY['workflow_instances', 'workflow_transitions', 'workflow_links', 'records']) AS kept;

-- What may leave: that of which the archive has the very same.

CREATE FUNCTION interlock_kept() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    stands jsonb;
    named  varchar := TG_TABLE_NAME;  -- of the column's own type: compared with a `name`, its index is not used
BEGIN
    IF TG_OP = 'DELETE' THEN
        CASE TG_TABLE_NAME
            WHEN 'workflow_instances' THEN
                SELECT to_jsonb(a) - 'archived_at' INTO stands FROM archive.workflow_instances a WHERE a.id = OLD.id;
            WHEN 'workflow_transitions' THEN
                SELECT to_jsonb(a) INTO stands FROM archive.workflow_transitions a
                 WHERE a.workflow_id = OLD.workflow_id AND a.seq = OLD.seq;
            ELSE
                SELECT body INTO stands FROM archive.records
                 WHERE kind = named AND key = to_jsonb(OLD)->>TG_ARGV[0];
        END CASE;
        IF stands = to_jsonb(OLD) THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation', HINT = 'History and definitions are kept for ever as they were written.';
END $$;

DO $$
DECLARE
    kept record;
BEGIN
    FOR kept IN
        SELECT * FROM (VALUES
            ('workflow_instances', 'id', 'DELETE'), ('workflow_transitions', 'id', 'UPDATE OR DELETE'),
            ('patches', 'patch_id', 'UPDATE OR DELETE')
        ) AS k (named, key, events)
        UNION ALL
        SELECT typed, key, 'DELETE' FROM interlock_kinds() WHERE type <> 'circuit_breaker'  -- these never end
    LOOP
        EXECUTE format('CREATE OR REPLACE TRIGGER kept BEFORE %s ON %I FOR EACH ROW EXECUTE FUNCTION interlock_kept(%L)',
                       kept.events, kept.named, kept.key);
        EXECUTE format('ALTER TABLE %I ENABLE ALWAYS TRIGGER kept', kept.named);
    END LOOP;
END $$;

-- A name that was used is not free again, nor is an id.

CREATE FUNCTION interlock_not_archived() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM archive.workflow_instances
                WHERE (project_id, workflow_type, entity_id) = (NEW.project_id, NEW.workflow_type, NEW.entity_id))
       OR EXISTS (SELECT FROM archive.workflow_instances WHERE id = NEW.id) THEN
        RAISE EXCEPTION '%/% of project % is archived: its name is not free', NEW.workflow_type, NEW.entity_id,
            NEW.project_id USING ERRCODE = 'unique_violation', HINT = 'interlock archive show REF';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER not_archived BEFORE INSERT ON workflow_instances
    FOR EACH ROW EXECUTE FUNCTION interlock_not_archived();
ALTER TABLE workflow_instances ENABLE ALWAYS TRIGGER not_archived;

-- What is looked up when a row leaves that others may name.
CREATE INDEX task_claims_task ON task_claims (task_id);
CREATE INDEX patch_ledger_entries_task ON patch_ledger_entries (task_id);
CREATE INDEX patch_ledger_entries_patch ON patch_ledger_entries (patch_id);

-- Moving. The caller has locked the instances; what is asked again here is seen after that. `held` says why they may not.

CREATE FUNCTION interlock_archive(unit uuid[], older_than interval, keys_kept interval)
    RETURNS TABLE (held text, instances bigint, events bigint) LANGUAGE plpgsql AS $$
DECLARE
    place record;
BEGIN
    held := CASE
        WHEN EXISTS (SELECT FROM workflow_instances i
                       JOIN definition_states s ON s.type = i.workflow_type AND s.version = i.definition_version
                                               AND s.state = i.current_state
                      WHERE i.id = ANY(unit) AND (NOT s.terminal OR i.updated_at > now() - older_than))
            THEN 'has not ended, or not long ago'
        WHEN EXISTS (SELECT FROM workflow_links l WHERE l.source_id = ANY(unit) AND l.target_id <> ALL(unit))
             OR EXISTS (SELECT FROM workflow_links l WHERE l.target_id = ANY(unit) AND l.source_id <> ALL(unit))
             OR EXISTS (SELECT FROM trigger_requests r WHERE r.held_by = ANY(unit) AND r.workflow_id <> ALL(unit))
             OR EXISTS (SELECT FROM task_claims c WHERE c.worker_id = ANY(unit) AND c.task_id <> ALL(unit))
            THEN 'something that stays names it'
        WHEN EXISTS (SELECT FROM trigger_requests r WHERE r.workflow_id = ANY(unit) AND r.finished_at IS NULL)
             OR EXISTS (SELECT FROM effects e WHERE e.workflow_id = ANY(unit) AND e.finished_at IS NULL)
             OR EXISTS (SELECT FROM run_signals g WHERE g.run_id = ANY(unit))
             OR EXISTS (SELECT FROM task_claims c WHERE c.task_id = ANY(unit) AND c.ended_at IS NULL)
            THEN 'something of it is still to be done'
        WHEN EXISTS (SELECT FROM trigger_requests r WHERE r.workflow_id = ANY(unit) AND r.status = 'dead')
             OR EXISTS (SELECT FROM effects e WHERE e.workflow_id = ANY(unit) AND e.status = 'dead')
            THEN 'it has dead requests or effects'
        WHEN EXISTS (SELECT FROM trigger_requests r
                      WHERE r.workflow_id = ANY(unit) AND r.finished_at > now() - keys_kept)
             OR EXISTS (SELECT FROM effects e WHERE e.workflow_id = ANY(unit) AND e.finished_at > now() - keys_kept)
            THEN 'its request ids are still kept'
        ELSE (SELECT 'not yet relayed to ' || string_agg(c.name, ', ' ORDER BY c.name)
                FROM relay_cursors c
               WHERE EXISTS (SELECT FROM workflow_transitions t
                              WHERE t.workflow_id = ANY(unit) AND (t.xid, t.position) > (c.xid, c.position)))
    END;
    IF held IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;

    INSERT INTO archive.workflow_instances SELECT i.*, now() FROM workflow_instances i WHERE i.id = ANY(unit);
    GET DIAGNOSTICS instances = ROW_COUNT;
    INSERT INTO archive.workflow_transitions SELECT * FROM workflow_transitions t WHERE t.workflow_id = ANY(unit);
    GET DIAGNOSTICS events = ROW_COUNT;
    INSERT INTO archive.workflow_links SELECT * FROM workflow_links l WHERE l.source_id = ANY(unit);

    -- In the order in which they name each other. `of` is the instance that a row belongs to.
    FOR place IN SELECT * FROM (VALUES
        (1, 'task_claims', 'token', 'task_id'), (2, 'plans', 'run_id', 'run_id'),
        (3, 'workstream_counts', 'ws_id', 'ws_id'), (4, 'run_counts', 'run_id', 'run_id'),
        (5, 'patch_ledger_entries', 'ledger_id', 'ledger_id'), (6, 'test_gates', 'gate_id', 'gate_id'),
        (7, 'tasks', 'task_id', 'task_id'), (8, 'workstreams', 'ws_id', 'ws_id'), (9, 'runs', 'run_id', 'run_id'),
        (10, 'workers', 'worker_id', 'worker_id'), (11, 'uet_workers', 'worker_id', 'worker_id'),
        (12, 'supervised_workers', 'id', 'id'), (13, 'jobs', 'id', 'id')
    ) AS p (nth, named, key, belongs) ORDER BY nth LOOP
        IF place.named = 'patch_ledger_entries' THEN  -- a patch goes with the last entry that names it
            INSERT INTO archive.records (kind, key, workflow_id, body)
            SELECT 'patches', p.patch_id, (SELECT e.ledger_id FROM patch_ledger_entries e
                                            WHERE e.patch_id = p.patch_id ORDER BY e.ledger_id LIMIT 1), to_jsonb(p)
              FROM patches p
             WHERE EXISTS (SELECT FROM patch_ledger_entries e WHERE e.patch_id = p.patch_id AND e.ledger_id = ANY(unit))
               AND NOT EXISTS (SELECT FROM patch_ledger_entries e WHERE e.patch_id = p.patch_id AND e.ledger_id <> ALL(unit));
        END IF;
        EXECUTE format('INSERT INTO archive.records (kind, key, workflow_id, body)
                        SELECT %1$L, r.%2$I::text, r.%3$I, to_jsonb(r) FROM %1$I r WHERE r.%3$I = ANY($1)',
                       place.named, place.key, place.belongs) USING unit;
        EXECUTE format('DELETE FROM %I r WHERE r.%I = ANY($1)', place.named, place.belongs) USING unit;
    END LOOP;
    DELETE FROM patches p
     WHERE p.patch_id IN (SELECT key FROM archive.records WHERE kind = 'patches' AND workflow_id = ANY(unit));
    DELETE FROM trigger_requests r WHERE r.workflow_id = ANY(unit);
    DELETE FROM effects e WHERE e.workflow_id = ANY(unit);
    DELETE FROM stuck_entities s WHERE s.workflow_id = ANY(unit);
    DELETE FROM workflow_links l WHERE l.source_id = ANY(unit);
    DELETE FROM workflow_transitions t WHERE t.workflow_id = ANY(unit);
    DELETE FROM workflow_instances i WHERE i.id = ANY(unit);
    RETURN NEXT;
END $$;

-- The seeds' views read the archive too (SSOT 6.7, MVP 5.1) ----------------------------------------------------------------

CREATE OR REPLACE VIEW state_transitions AS
    SELECT t.position AS transition_id, t.workflow_type AS entity_type, i.entity_id, t.from_state, t.to_state, t.trigger,
           t.metadata->>'reason' AS reason, t.metadata, t.metadata->>'operator' AS operator,
           t.created_at AS transitioned_at, t.workflow_id
      FROM every_transition t JOIN every_instance i ON i.id = t.workflow_id;

CREATE OR REPLACE VIEW worker_state_transitions AS
    SELECT t.position AS id, t.workflow_id AS worker_id, t.from_state, t.to_state, t.metadata->>'reason' AS reason,
           t.created_at AS "timestamp"
      FROM every_transition t WHERE t.workflow_type = 'supervised_worker';

CREATE OR REPLACE VIEW job_state_transitions AS
    SELECT t.position AS id, t.workflow_id AS job_id, t.from_state, t.to_state, t.metadata->>'reason' AS reason,
           t.created_at AS "timestamp"
      FROM every_transition t WHERE t.workflow_type = 'job';

-- The oldest lineage under its own names (seed 000): workstreams and steps of 0.x, called by their entity ids.

CREATE SCHEMA lineage;

CREATE VIEW lineage.workstreams AS
    SELECT entity_id AS ws_id, current_state AS state, created_at, updated_at, id AS workflow_id
      FROM every_instance WHERE workflow_type = 'workstream' AND definition_version LIKE '0.%';

CREATE VIEW lineage.steps AS
    SELECT s.entity_id AS step_id, w.entity_id AS ws_id, s.current_state AS state, s.created_at, s.updated_at,
           (SELECT count(*) FROM every_transition t
             WHERE t.workflow_id = s.id AND t.trigger = 'retry_eligible')::integer AS retry_count, s.id AS workflow_id
      FROM every_instance s
      LEFT JOIN (SELECT source_id, role, target_id FROM workflow_links
                 UNION ALL SELECT source_id, role, target_id FROM archive.workflow_links) l
             ON l.source_id = s.id AND l.role = 'workstream'
      LEFT JOIN every_instance w ON w.id = l.target_id
     WHERE s.workflow_type = 'step';

CREATE VIEW lineage.state_transitions AS
    SELECT transition_id, entity_id AS ws_id, from_state, to_state, transitioned_at, metadata
      FROM public.state_transitions WHERE entity_type = 'workstream';

-- History as canonical events (SSOT 7.1), the archive's too. ---------------------------------------------------------------

CREATE VIEW events AS
    SELECT interlock_event_name(t.id) AS event_id, t.created_at AS "timestamp",
           CASE WHEN COALESCE(t.metadata->>'operator', '') <> '' THEN 'manual_override'
                ELSE CASE t.workflow_type WHEN 'patch_ledger' THEN 'patch' WHEN 'test_gate' THEN 'gate'
                                          ELSE t.workflow_type END || '_state_transition' END AS event_type,
           t.severity, t.workflow_type AS entity_type, i.entity_id, t.from_state, t.to_state, t.trigger,
           t.metadata->>'reason' AS reason, t.metadata, t.metadata->>'operator' AS operator, t.triggered_by, t.request_id,
           t.definition_version,
           jsonb_strip_nulls(jsonb_build_object(
               'project_id', i.project_id, 'workflow_id', t.workflow_id, 'seq', t.seq,
               'xid', t.xid::text::bigint, 'position', t.position,
               'run_id', CASE i.workflow_type WHEN 'run' THEN i.id
                                              ELSE COALESCE(w.run_id, (r.body->>'run_id')::uuid) END,
               'workstream_id', COALESCE(w.ws_id, r.key::uuid),
               'phase_id', COALESCE(w.phase_id, r.body->>'phase_id', interlock_phase_of(i.workflow_type, i.context))
           )) AS context,
           encode(t.prev_hash, 'hex') AS prev_hash, encode(t.hash, 'hex') AS hash
      FROM every_transition t
      JOIN every_instance i ON i.id = t.workflow_id
      LEFT JOIN workstreams w
             ON w.ws_id = interlock_workstream_of(i.workflow_type, i.definition_version, i.id, i.context)
      LEFT JOIN archive.records r
             ON r.kind = 'workstreams'
            AND r.key = interlock_workstream_of(i.workflow_type, i.definition_version, i.id, i.context)::text;

-- Restores: transactions from `first_xid` on came after a backup was restored. Where events are named by their place in
-- commit order outside of this database, names of the time before, lost or not, are not used again.
CREATE TABLE restores (
    first_xid   xid8        PRIMARY KEY,
    restored_at timestamptz NOT NULL DEFAULT now(),
    taken_at    timestamptz NOT NULL,
    backup      text        NOT NULL
);
