-- What an auditor is given: signed heads of the chains, exports, and history as flat views and canonical events.

-- Anchors: what the chains' heads were when somebody signed them. A chain cut at its end, or written anew with new hashes,
-- is whole in itself; it no longer holds what an anchor saw.

CREATE TABLE interlock.anchors (
    number  integer     PRIMARY KEY CHECK (number > 0),
    made_at timestamptz NOT NULL,
    record  text        NOT NULL,  -- JSON: an entry of the tree of anchors
    proof   text        NOT NULL   -- its place in that tree, and the signed checkpoint (c2sp.org/tlog-proof)
);

-- The schema as each migration left it: the digest of each object's definition.
CREATE TABLE interlock.schema_states (
    number      integer     GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    login       varchar(63) NOT NULL DEFAULT session_user,
    objects     jsonb       NOT NULL CHECK (jsonb_typeof(objects) = 'object')
);

-- Locked by whoever makes an anchor or an export. Unlike an advisory lock, LOCK TABLE takes no snapshot: what the one before
-- committed is seen.
CREATE TABLE interlock.anchoring ();

CREATE TABLE interlock.anchor_heads (
    workflow_id uuid    NOT NULL,
    seq         integer NOT NULL,  -- of its newest event; 0: its birth
    hash        bytea   NOT NULL,
    number      integer NOT NULL REFERENCES interlock.anchors (number) DEFERRABLE INITIALLY DEFERRED,
    PRIMARY KEY (workflow_id, seq)
);
CREATE INDEX anchor_heads_number ON interlock.anchor_heads (number, workflow_id, seq);

-- How far anchors were copied to each place outside of the database (a directory, or `command`), and what was in the way.
CREATE TABLE interlock.anchor_copies (
    destination text    PRIMARY KEY,
    number      integer NOT NULL DEFAULT 0 CHECK (number >= 0),
    error       text
);

-- What was exported, and the hash of its manifest: the next one names it.
CREATE TABLE interlock.audit_exports (
    number   integer     PRIMARY KEY CHECK (number > 0),
    made_at  timestamptz NOT NULL,
    events   bigint      NOT NULL,
    manifest char(64)    NOT NULL
);

-- How far history was verified by itself: a pass reads all instances, in the order of their ids, and compares what stands beside
-- history with it (anchors, exports, the journal); the later of both ends it.
CREATE TABLE interlock.verifications (
    pass        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    last_id     uuid,                           -- the last instance that it read
    read_at     timestamptz,                    -- it read them all
    compared_at timestamptz,                    -- it compared what stands beside history
    instances   bigint      NOT NULL DEFAULT 0,
    transitions bigint      NOT NULL DEFAULT 0,
    problems    bigint      NOT NULL DEFAULT 0,
    found       jsonb       NOT NULL DEFAULT '[]'  -- the first hundred of them
);

-- The newest event whose request was deleted, its keeping time over. Of each event after it, the request stands beside history.
CREATE TABLE interlock.pruned (
    only_one     boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
    upto         timestamptz NOT NULL DEFAULT '-infinity',
    effects_upto timestamptz NOT NULL DEFAULT '-infinity'  -- and when the newest effect ended that was deleted
);

INSERT INTO interlock.pruned DEFAULT VALUES;

-- The event that a request's result names.
CREATE FUNCTION interlock.event_of(result jsonb) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN substring(result->>'event_id' FROM '^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$')::uuid;

CREATE FUNCTION interlock.note_pruned() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    newest timestamptz;
BEGIN
    SELECT max(GREATEST(g.finished_at, t.created_at)) INTO newest  -- an event's time does not go back, a clock may
      FROM gone g
      LEFT JOIN interlock.workflow_transitions t ON t.id = interlock.event_of(g.result)
     WHERE NOT EXISTS (SELECT FROM interlock.archived_instances a WHERE a.id = g.workflow_id);
    UPDATE interlock.pruned SET upto = newest WHERE upto < newest;
    RETURN NULL;
END $$;

CREATE TRIGGER noted AFTER DELETE ON interlock.trigger_requests REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION interlock.note_pruned();

CREATE FUNCTION interlock.note_pruned_effects() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    newest timestamptz;
BEGIN
    SELECT max(g.finished_at) INTO newest FROM gone g
     WHERE NOT EXISTS (SELECT FROM interlock.archived_instances a WHERE a.id = g.workflow_id);
    UPDATE interlock.pruned SET effects_upto = newest WHERE effects_upto < newest;
    RETURN NULL;
END $$;

CREATE TRIGGER noted AFTER DELETE ON interlock.effects REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION interlock.note_pruned_effects();

-- Restores: transactions from `first_xid` on came after a backup was restored. Where events are named by their place in
-- commit order outside of this database, names of the time before, lost or not, are not used again.
CREATE TABLE interlock.restores (
    first_xid   xid8        PRIMARY KEY,
    restored_at timestamptz NOT NULL DEFAULT now(),
    taken_at    timestamptz NOT NULL,
    backup      text        NOT NULL
);

-- The flat views of history read the archive too (CHECK-22) ----------------------------------------------------------------

CREATE VIEW interlock.state_transitions AS
    SELECT t.position AS transition_id, t.workflow_type AS entity_type, i.entity_id, t.from_state, t.to_state, t.trigger,
           t.metadata->>'reason' AS reason, t.metadata, t.metadata->>'operator' AS operator,
           t.created_at AS transitioned_at, t.workflow_id
      FROM interlock.every_transition t JOIN interlock.every_instance i ON i.id = t.workflow_id;

CREATE VIEW interlock.worker_state_transitions AS
    SELECT t.position AS id, t.workflow_id AS worker_id, t.from_state, t.to_state, t.metadata->>'reason' AS reason,
           t.created_at AS "timestamp"
      FROM interlock.every_transition t WHERE t.workflow_type = 'supervised_worker';

CREATE VIEW interlock.job_state_transitions AS
    SELECT t.position AS id, t.workflow_id AS job_id, t.from_state, t.to_state, t.metadata->>'reason' AS reason,
           t.created_at AS "timestamp"
      FROM interlock.every_transition t WHERE t.workflow_type = 'job';

-- The oldest lineage under its own names (LEGACY-7): workstreams and steps of 0.x, called by their entity ids.

CREATE VIEW interlock.lineage_workstreams AS
    SELECT entity_id AS ws_id, current_state AS state, created_at, updated_at, id AS workflow_id
      FROM interlock.every_instance WHERE workflow_type = 'workstream' AND definition_version LIKE '0.%';

CREATE VIEW interlock.lineage_steps AS
    SELECT s.entity_id AS step_id, w.entity_id AS ws_id, s.current_state AS state, s.created_at, s.updated_at,
           (SELECT count(*) FROM interlock.every_transition t
             WHERE t.workflow_id = s.id AND t.trigger = 'retry_eligible')::integer AS retry_count, s.id AS workflow_id
      FROM interlock.every_instance s
      LEFT JOIN (SELECT source_id, role, target_id FROM interlock.workflow_links
                 UNION ALL SELECT source_id, role, target_id FROM interlock.archived_links) l
             ON l.source_id = s.id AND l.role = 'workstream'
      LEFT JOIN interlock.every_instance w ON w.id = l.target_id
     WHERE s.workflow_type = 'step';

CREATE VIEW interlock.lineage_state_transitions AS
    SELECT transition_id, entity_id AS ws_id, from_state, to_state, transitioned_at, metadata
      FROM interlock.state_transitions WHERE entity_type = 'workstream';

-- The workstream that an instance belongs to, NULL for what has none; only types whose births have read it as a UUID.
CREATE FUNCTION interlock.workstream_of(type text, version text, id uuid, context jsonb)
    RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN version LIKE '0.%' THEN NULL
                WHEN type = 'workstream' THEN id
                WHEN type IN ('task', 'patch_ledger', 'test_gate') THEN (context->>'workstream_id')::uuid END;

-- The phase of what has one of its own; what belongs to a workstream is in that one's.
CREATE FUNCTION interlock.phase_of(type text, context jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN type IN ('run', 'test_gate') THEN COALESCE(context->>'phase_id', 'default') END;

-- `evt_` and the UUID's bits as a ULID, as `workflows.audit.ids` writes it.
CREATE FUNCTION interlock.event_name(id uuid) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 'evt_' || (
        SELECT string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ',
                                 substring('00' || bits FROM place * 5 + 1 FOR 5)::bit(5)::integer + 1, 1), ''
                          ORDER BY place)
          FROM (SELECT ('x' || replace(id::text, '-', ''))::bit(128)::text AS bits) AS id,
               generate_series(0, 25) AS place);

-- History as canonical events (EVENT-1), the archive's too. ---------------------------------------------------------------

CREATE VIEW interlock.events AS
    SELECT interlock.event_name(t.id) AS event_id, t.created_at AS "timestamp",
           CASE WHEN COALESCE(t.metadata->>'operator', '') <> '' THEN 'manual_override'
                ELSE CASE t.workflow_type WHEN 'patch_ledger' THEN 'patch' WHEN 'test_gate' THEN 'gate'
                                          ELSE t.workflow_type END || '_state_transition' END AS event_type,
           d.event AS named_event,
           t.severity, t.workflow_type AS entity_type, i.entity_id, t.from_state, t.to_state, t.trigger,
           t.metadata->>'reason' AS reason, t.metadata, t.metadata->>'operator' AS operator, t.triggered_by, t.request_id,
           t.authority, t.proof, t.login, t.definition_version,
           jsonb_strip_nulls(jsonb_build_object(
               'project', i.project, 'workflow_id', t.workflow_id, 'seq', t.seq,
               'xid', t.xid::text::bigint, 'position', t.position,
               'run_id', CASE i.workflow_type WHEN 'run' THEN i.id
                                              ELSE COALESCE(w.run_id, (r.body->>'run_id')::uuid) END,
               'workstream_id', COALESCE(w.ws_id, r.key::uuid),
               'phase_id', COALESCE(w.phase_id, r.body->>'phase_id', interlock.phase_of(i.workflow_type, i.context))
           )) AS context,
           encode(t.prev_hash, 'hex') AS prev_hash, encode(t.hash, 'hex') AS hash
      FROM interlock.every_transition t
      JOIN interlock.every_instance i ON i.id = t.workflow_id
      LEFT JOIN interlock.definition_transitions d
             ON (d.type, d.version, d.source, d.trigger, d.dest)
                = (t.workflow_type, t.definition_version, t.from_state, t.trigger, t.to_state)
      LEFT JOIN interlock.workstreams w
             ON w.ws_id = interlock.workstream_of(i.workflow_type, i.definition_version, i.id, i.context)
      LEFT JOIN interlock.archived_records r
             ON r.kind = 'workstreams'
            AND r.key = interlock.workstream_of(i.workflow_type, i.definition_version, i.id, i.context)::text;

-- Rows that differ from their instances' histories: whose, and how.
CREATE FUNCTION interlock.rows_unlike_history() RETURNS TABLE (named text, what text) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT 'operator_grant ' || COALESCE(i.entity_id, o.name) || ' (' || COALESCE(i.id, o.grant_id) || ')',
           CASE WHEN i.id IS NULL THEN 'operators has a grant without a history: ' || o.name
                WHEN o.grant_id IS NULL THEN 'operators has lost it'
                ELSE format('operators says %s, but its history says %s', o, t) END
      FROM (SELECT * FROM interlock.workflow_instances WHERE workflow_type = 'operator_grant') i
      FULL JOIN interlock.operators o ON o.grant_id = i.id
      LEFT JOIN LATERAL interlock.recorded_grant(i.id) t ON true
     WHERE o IS DISTINCT FROM t
    UNION ALL
    SELECT 'api_token ' || COALESCE(i.entity_id, a.name) || ' (' || COALESCE(i.id, a.token_id) || ')',
           CASE WHEN i.id IS NULL THEN 'api_tokens has a token without a history: ' || a.name
                WHEN a.token_id IS NULL THEN 'api_tokens has lost it'
                ELSE format('api_tokens says %s, but its history says %s', a, t) END
      FROM (SELECT * FROM interlock.workflow_instances WHERE workflow_type = 'api_token') i
      FULL JOIN interlock.api_tokens a ON a.token_id = i.id
      LEFT JOIN LATERAL interlock.recorded_token(i.id) t ON true
     WHERE a IS DISTINCT FROM t
    UNION ALL
    SELECT 'deprecation ' || COALESCE(i.entity_id, d.type || '-' || d.version) || ' (' || COALESCE(i.id, d.deprecation_id) || ')',
           CASE WHEN i.id IS NULL THEN 'deprecations has it without a history'
                WHEN d.deprecation_id IS NULL THEN 'deprecations has lost it'
                ELSE format('deprecations says %s, but its history says %s', d, t) END
      FROM (SELECT * FROM interlock.workflow_instances WHERE workflow_type = 'deprecation') i
      FULL JOIN interlock.deprecations d ON d.deprecation_id = i.id
      LEFT JOIN LATERAL interlock.recorded_deprecation(i.id) t ON true
     WHERE d IS DISTINCT FROM t
    UNION ALL
    SELECT 'narrowing ' || COALESCE(i.entity_id, n.type || '.' || n.trigger) || ' (' || COALESCE(i.id, n.narrowing_id) || ')',
           CASE WHEN i.id IS NULL THEN 'narrowings has it, but none is in force'
                WHEN n.narrowing_id IS NULL THEN 'narrowings has lost it'
                ELSE 'narrowings says other than its terms' END
      FROM (SELECT * FROM interlock.workflow_instances WHERE workflow_type = 'narrowing' AND current_state = 'in_force') i
      FULL JOIN interlock.narrowings n ON n.narrowing_id = i.id
     WHERE (i.project, i.context->>'type', i.context->>'trigger', ARRAY(SELECT jsonb_array_elements_text(i.context->'to')))
           IS DISTINCT FROM (n.project, n.type, n.trigger, n.open_to)
    UNION ALL
    SELECT 'schedule ' || COALESCE(i.entity_id, '') || ' (' || COALESCE(i.id, s.schedule_id) || ')',
           CASE WHEN i.id IS NULL THEN 'schedules has it, but it has ended, or has no history'
                WHEN s.schedule_id IS NULL THEN 'schedules has lost it'
                ELSE 'schedules says other than its state' END
      FROM (SELECT * FROM interlock.workflow_instances WHERE workflow_type = 'schedule' AND current_state <> 'ended') i
      FULL JOIN interlock.schedules s ON s.schedule_id = i.id
     WHERE (i.current_state = 'active') IS DISTINCT FROM (s.next_at IS NOT NULL)
    UNION ALL
    SELECT 'limit ' || COALESCE(i.entity_id, l.kind || '.' || l.name) || ' (' || COALESCE(i.id, l.limit_id) || ')',
           CASE WHEN i.id IS NULL THEN 'limits has it, but it is not in force'
                WHEN l.limit_id IS NULL THEN 'limits has lost it'
                ELSE 'limits says other than its terms' END
      FROM (SELECT * FROM interlock.workflow_instances WHERE workflow_type = 'limit' AND current_state = 'in_force') i
      FULL JOIN interlock.limits l ON l.limit_id = i.id
     WHERE i.id IS NULL OR l.limit_id IS NULL OR interlock.limit_of(i) IS DISTINCT FROM l
    UNION ALL
    SELECT 'handover ' || COALESCE(i.entity_id, '') || ' (' || COALESCE(i.id, h.handover_id) || ')',
           CASE WHEN i.id IS NULL THEN format('handovers has it for %s, but it is given back, or has no history', h.workflow_id)
                WHEN h.handover_id IS NULL THEN 'handovers has lost it'
                WHEN h.workflow_id::text <> i.context->>'instance' THEN 'handovers says other than its terms'
                ELSE format('%s has moved since it was frozen', h.workflow_id) END
      FROM (SELECT * FROM interlock.every_instance WHERE workflow_type = 'handover' AND current_state IN ('frozen', 'started')) i
      FULL JOIN interlock.handovers h ON h.handover_id = i.id
      LEFT JOIN interlock.workflow_instances f ON f.id = h.workflow_id
     WHERE i.id IS NULL OR h.handover_id IS NULL OR h.workflow_id::text <> i.context->>'instance'
           OR (f.version, encode(interlock.head_of(f), 'hex')) IS DISTINCT FROM ((i.context->>'at')::integer, i.context->>'head')
    UNION ALL
    SELECT 'budget ' || COALESCE(i.entity_id, b.kind || '.' || b.name) || ' (' || COALESCE(i.id, b.budget_id) || ')',
           CASE WHEN i.id IS NULL THEN 'budgets has it, but it is not in force'
                WHEN b.budget_id IS NULL THEN 'budgets has lost it'
                ELSE 'budgets says other than its terms' END
      FROM (SELECT * FROM interlock.workflow_instances WHERE workflow_type = 'budget' AND current_state = 'in_force') i
      FULL JOIN interlock.budgets b ON b.budget_id = i.id
     WHERE i.id IS NULL OR b.budget_id IS NULL OR to_jsonb(interlock.budget_of(i)) - 'uses' IS DISTINCT FROM to_jsonb(b) - 'uses'
    UNION ALL
    SELECT 'brake ' || COALESCE(i.entity_id, b.entity_id) || ' (' || COALESCE(i.id, b.brake_id) || ')',
           CASE WHEN i.id IS NULL THEN 'brakes has it, but it is released' WHEN b.brake_id IS NULL THEN 'brakes has lost it'
                ELSE 'brakes says other than its terms' END
      FROM (SELECT * FROM interlock.workflow_instances WHERE workflow_type = 'brake' AND current_state <> 'released') i
      FULL JOIN interlock.brakes b ON b.brake_id = i.id
     WHERE i.id IS NULL OR b.brake_id IS NULL OR interlock.brake_of(i) IS DISTINCT FROM b
    UNION ALL
    SELECT 'subscription ' || COALESCE(i.entity_id, '') || ' (' || COALESCE(i.id, s.subscription_id) || ')',
           CASE WHEN i.id IS NULL THEN 'subscriptions has it, but it has ended, or has no history'
                WHEN s.subscription_id IS NULL THEN 'subscriptions has lost it'
                ELSE 'subscriptions says other than its state' END
      FROM (SELECT * FROM interlock.workflow_instances
             WHERE workflow_type = 'subscription' AND current_state NOT IN ('proposed', 'removed')) i
      FULL JOIN interlock.subscriptions s ON s.subscription_id = i.id
     WHERE i.current_state IS DISTINCT FROM s.state;
END $$;
