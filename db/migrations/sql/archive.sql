-- The archive: finished instances with their history, moved whole, in one transaction --------------------------------------
-- A row leaves its table only when the very same row stands in the archive; the archive takes only what stands in its
-- table, whole histories of ended instances, and keeps it for ever. Raw SQL is held to all of it.

CREATE TABLE interlock.archived_instances (
    LIKE interlock.workflow_instances,
    archived_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id),
    UNIQUE (project, workflow_type, entity_id)
);
CREATE INDEX archived_instances_entity ON interlock.archived_instances (entity_id, project);

CREATE TABLE interlock.archived_transitions (
    LIKE interlock.workflow_transitions,
    PRIMARY KEY (workflow_id, seq),
    FOREIGN KEY (workflow_id) REFERENCES interlock.archived_instances (id)
);
CREATE UNIQUE INDEX archived_transitions_id ON interlock.archived_transitions (id);  -- by which others were proven
CREATE UNIQUE INDEX archived_transitions_commit_order ON interlock.archived_transitions (xid, position);

CREATE TABLE interlock.archived_links (
    LIKE interlock.workflow_links,
    PRIMARY KEY (source_id, role, target_id)
);
CREATE INDEX archived_links_target ON interlock.archived_links (target_id);

-- Rows of typed tables and what belongs to them, as JSON: they are read, never computed with.
CREATE TABLE interlock.archived_records (
    kind        varchar(50) NOT NULL,
    key         text        NOT NULL,
    workflow_id uuid        NOT NULL REFERENCES interlock.archived_instances (id),
    body        jsonb       NOT NULL,
    PRIMARY KEY (kind, key)
);
CREATE INDEX archived_records_workflow ON interlock.archived_records (workflow_id);

-- Where the sweep goes on: it passes over all that has ended, a part each time.
CREATE TABLE interlock.archive_progress (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    after    uuid
);

INSERT INTO interlock.archive_progress DEFAULT VALUES;

CREATE VIEW interlock.every_instance AS
    SELECT *, NULL::timestamptz AS archived_at FROM interlock.workflow_instances
    UNION ALL
    SELECT * FROM interlock.archived_instances;

CREATE VIEW interlock.every_transition AS
    SELECT * FROM interlock.workflow_transitions
    UNION ALL
    SELECT * FROM interlock.archived_transitions;

CREATE FUNCTION interlock.birth_hash(i interlock.archived_instances) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN interlock.birth_hash(i.id, i.workflow_type, i.born_version, i.entity_id, i.project, i.created_by, i.created_at,
                                i.context_sha256, i.bodies, i.born_proof);

CREATE VIEW interlock.every_birth AS
    SELECT id, interlock.birth_hash(i) AS hash FROM interlock.workflow_instances i
    UNION ALL
    SELECT id, interlock.birth_hash(i) FROM interlock.archived_instances i;

-- What the archive takes.

CREATE FUNCTION interlock.archive_takes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    offered jsonb := to_jsonb(NEW) - 'archived_at';
    stands  boolean;
BEGIN
    CASE TG_TABLE_NAME
        WHEN 'archived_instances' THEN
            SELECT to_jsonb(i) = offered AND s.terminal INTO stands
              FROM interlock.workflow_instances i
              JOIN interlock.definition_states s ON s.type = i.workflow_type AND s.version = i.definition_version
                                      AND s.state = i.current_state
             WHERE i.id = NEW.id;
            NEW.archived_at := now();
        WHEN 'archived_transitions' THEN
            SELECT to_jsonb(t) = offered INTO stands FROM interlock.workflow_transitions t
             WHERE t.workflow_id = NEW.workflow_id AND t.seq = NEW.seq;
        WHEN 'archived_links' THEN
            SELECT to_jsonb(l) = offered INTO stands FROM interlock.workflow_links l
             WHERE (l.source_id, l.role, l.target_id) = (NEW.source_id, NEW.role, NEW.target_id);
    END CASE;
    IF NOT COALESCE(stands, false) THEN
        RAISE EXCEPTION 'the archive takes only ended instances, as identical copies of their rows in %', replace(TG_TABLE_NAME, 'archived', 'workflow')
            USING ERRCODE = 'restrict_violation', HINT = 'interlock archive run';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER takes BEFORE INSERT ON interlock.archived_instances FOR EACH ROW EXECUTE FUNCTION interlock.archive_takes();

CREATE TRIGGER takes BEFORE INSERT ON interlock.archived_transitions FOR EACH ROW EXECUTE FUNCTION interlock.archive_takes();

CREATE TRIGGER takes BEFORE INSERT ON interlock.archived_links FOR EACH ROW EXECUTE FUNCTION interlock.archive_takes();

CREATE FUNCTION interlock.archived_whole() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM interlock.workflow_instances WHERE id = NEW.id)
       OR EXISTS (SELECT FROM interlock.workflow_transitions WHERE workflow_id = NEW.id)
       OR (SELECT count(*) FROM interlock.archived_transitions WHERE workflow_id = NEW.id) <> NEW.version THEN
        RAISE EXCEPTION 'instance % is only partly archived', NEW.id
            USING ERRCODE = 'restrict_violation', HINT = 'interlock archive run moves an instance with its whole history';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER moved_whole AFTER INSERT ON interlock.archived_instances
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION interlock.archived_whole();

-- A name that was used is not free again, nor is an id.

CREATE FUNCTION interlock.not_archived() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    used record;
BEGIN
    SELECT c.workflow_type, c.entity_id, c.project INTO used
      FROM changed c
     WHERE (SELECT true FROM interlock.archived_instances a
             WHERE (a.project, a.workflow_type, a.entity_id) = (c.project, c.workflow_type, c.entity_id))
        OR (SELECT true FROM interlock.archived_instances a WHERE a.id = c.id)
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%/% of project % is archived: its name cannot be reused', used.workflow_type, used.entity_id,
            used.project USING ERRCODE = 'unique_violation', HINT = 'interlock archive show REF';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER not_archived AFTER INSERT ON interlock.workflow_instances REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION interlock.not_archived();

-- Moving. The caller has locked the instances; what is asked again here is seen after that. `held` says why they may not.

CREATE FUNCTION interlock.archive(unit uuid[], older_than interval, keys_kept interval)
    RETURNS TABLE (held text, instances bigint, events bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    place record;
BEGIN
    held := CASE
        WHEN EXISTS (SELECT FROM interlock.workflow_instances i
                       JOIN interlock.definition_states s ON s.type = i.workflow_type AND s.version = i.definition_version
                                               AND s.state = i.current_state
                      WHERE i.id = ANY(unit) AND (NOT s.terminal OR i.updated_at > now() - older_than))
            THEN 'it has not ended, or only recently'
        WHEN EXISTS (SELECT FROM interlock.workflow_instances WHERE id = ANY(unit) AND workflow_type IN ('operator_grant', 'deprecation', 'api_token'))
            THEN 'what gave power stays'
        WHEN EXISTS (SELECT FROM interlock.workflow_links l WHERE l.source_id = ANY(unit) AND l.target_id <> ALL(unit))
             OR EXISTS (SELECT FROM interlock.workflow_links l WHERE l.target_id = ANY(unit) AND l.source_id <> ALL(unit))
             OR EXISTS (SELECT FROM interlock.trigger_requests r WHERE r.held_by = ANY(unit) AND r.workflow_id <> ALL(unit))
             OR EXISTS (SELECT FROM interlock.task_claims c WHERE c.worker_id = ANY(unit) AND c.task_id <> ALL(unit))
            THEN 'an instance that stays refers to it'
        WHEN EXISTS (SELECT FROM interlock.trigger_requests r WHERE r.workflow_id = ANY(unit) AND r.finished_at IS NULL)
             OR EXISTS (SELECT FROM interlock.effects e WHERE e.workflow_id = ANY(unit) AND e.finished_at IS NULL)
             OR EXISTS (SELECT FROM interlock.run_signals g WHERE g.run_id = ANY(unit))
             OR EXISTS (SELECT FROM interlock.task_claims c WHERE c.task_id = ANY(unit) AND c.ended_at IS NULL)
            THEN 'it has unfinished work'
        WHEN EXISTS (SELECT FROM interlock.trigger_requests r WHERE r.workflow_id = ANY(unit) AND r.status = 'dead')
             OR EXISTS (SELECT FROM interlock.effects e WHERE e.workflow_id = ANY(unit) AND e.status = 'dead')
            THEN 'it has dead requests or effects'
        WHEN EXISTS (SELECT FROM interlock.trigger_requests r
                      WHERE r.workflow_id = ANY(unit) AND r.finished_at > now() - keys_kept)
             OR EXISTS (SELECT FROM interlock.effects e WHERE e.workflow_id = ANY(unit) AND e.finished_at > now() - keys_kept)
            THEN 'its request ids are still kept'
        ELSE (SELECT 'not yet relayed to ' || string_agg(c.name, ', ' ORDER BY c.name)
                FROM interlock.relay_cursors c
               WHERE EXISTS (SELECT FROM interlock.workflow_transitions t
                              WHERE t.workflow_id = ANY(unit) AND (t.xid, t.position) > (c.xid, c.position)))
    END;
    IF held IS NOT NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;

    INSERT INTO interlock.archived_instances SELECT i.*, now() FROM interlock.workflow_instances i WHERE i.id = ANY(unit);
    GET DIAGNOSTICS instances = ROW_COUNT;
    INSERT INTO interlock.archived_transitions SELECT * FROM interlock.workflow_transitions t WHERE t.workflow_id = ANY(unit);
    GET DIAGNOSTICS events = ROW_COUNT;
    INSERT INTO interlock.archived_links SELECT * FROM interlock.workflow_links l WHERE l.source_id = ANY(unit);

    -- In the order in which they name each other. `of` is the instance that a row belongs to.
    FOR place IN SELECT * FROM (VALUES
        (0, 'commands', 'workflow_id', 'workflow_id'), (1, 'task_claims', 'claim_id', 'task_id'), (2, 'plans', 'run_id', 'run_id'),
        (3, 'workstream_counts', 'ws_id', 'ws_id'), (4, 'run_counts', 'run_id', 'run_id'),
        (5, 'patch_ledger_entries', 'ledger_id', 'ledger_id'), (6, 'test_gates', 'gate_id', 'gate_id'),
        (7, 'tasks', 'task_id', 'task_id'), (8, 'workstreams', 'ws_id', 'ws_id'), (9, 'runs', 'run_id', 'run_id'),
        (10, 'workers', 'worker_id', 'worker_id'), (11, 'supervised_workers', 'id', 'id'), (12, 'jobs', 'id', 'id')
    ) AS p (nth, named, key, belongs) ORDER BY nth LOOP
        IF place.named = 'patch_ledger_entries' THEN  -- a patch goes with the last entry that names it
            INSERT INTO interlock.archived_records (kind, key, workflow_id, body)
            SELECT 'patches', p.patch_id, (SELECT e.ledger_id FROM interlock.patch_ledger_entries e
                                            WHERE e.patch_id = p.patch_id ORDER BY e.ledger_id LIMIT 1), to_jsonb(p)
              FROM interlock.patches p
             WHERE EXISTS (SELECT FROM interlock.patch_ledger_entries e WHERE e.patch_id = p.patch_id AND e.ledger_id = ANY(unit))
               AND NOT EXISTS (SELECT FROM interlock.patch_ledger_entries e WHERE e.patch_id = p.patch_id AND e.ledger_id <> ALL(unit));
        END IF;
        EXECUTE format('INSERT INTO interlock.archived_records (kind, key, workflow_id, body)
                        SELECT %1$L, r.%2$I::text, r.%3$I, to_jsonb(r) FROM interlock.%1$I r WHERE r.%3$I = ANY($1)',
                       place.named, place.key, place.belongs) USING unit;
        EXECUTE format('DELETE FROM interlock.%I r WHERE r.%I = ANY($1)', place.named, place.belongs) USING unit;
    END LOOP;
    DELETE FROM interlock.patches p
     WHERE p.patch_id IN (SELECT key FROM interlock.archived_records WHERE kind = 'patches' AND workflow_id = ANY(unit));
    DELETE FROM interlock.trigger_requests r WHERE r.workflow_id = ANY(unit);
    DELETE FROM interlock.effects e WHERE e.workflow_id = ANY(unit);
    DELETE FROM interlock.stuck_entities s WHERE s.workflow_id = ANY(unit);
    DELETE FROM interlock.workflow_links l WHERE l.source_id = ANY(unit);
    DELETE FROM interlock.workflow_transitions t WHERE t.workflow_id = ANY(unit);
    DELETE FROM interlock.workflow_instances i WHERE i.id = ANY(unit);
    RETURN NEXT;
END $$;
