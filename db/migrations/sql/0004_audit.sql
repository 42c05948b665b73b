-- What the canonical event takes (SSOT 7.1), and the anchors of the hash chains.

-- The workstream that an instance belongs to, NULL for what has none; only types whose births have read it as a UUID.
CREATE FUNCTION interlock_workstream_of(type text, version text, id uuid, context jsonb)
    RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN version LIKE '0.%' THEN NULL
                WHEN type = 'workstream' THEN id
                WHEN type IN ('task', 'patch_ledger', 'test_gate') THEN (context->>'workstream_id')::uuid END;

-- The phase of what has one of its own; what belongs to a workstream is in that one's.
CREATE FUNCTION interlock_phase_of(type text, context jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN type IN ('run', 'test_gate') THEN COALESCE(context->>'phase_id', 'default') END;

-- `evt_` and the UUID's bits as a ULID, as `workflows.ids` writes it.
CREATE FUNCTION interlock_event_name(id uuid) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 'evt_' || (
        SELECT string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ',
                                 substring('00' || bits FROM place * 5 + 1 FOR 5)::bit(5)::integer + 1, 1), ''
                          ORDER BY place)
          FROM (SELECT ('x' || replace(id::text, '-', ''))::bit(128)::text AS bits) AS id,
               generate_series(0, 25) AS place);

-- Anchors: what the chains' heads were when somebody signed them. A chain cut at its end, or written anew with new hashes,
-- is whole in itself; it no longer holds what an anchor saw.

CREATE TABLE anchors (
    number    integer     PRIMARY KEY CHECK (number > 0),
    made_at   timestamptz NOT NULL,
    body      text        NOT NULL,  -- exactly what is signed: JSON
    signature bytea       NOT NULL
);

CREATE TABLE anchor_heads (
    workflow_id uuid    NOT NULL,
    seq         integer NOT NULL,  -- of its newest event; 0: its birth
    hash        bytea   NOT NULL,
    number      integer NOT NULL REFERENCES anchors (number) DEFERRABLE INITIALLY DEFERRED,
    PRIMARY KEY (workflow_id, seq)
);
CREATE INDEX anchor_heads_number ON anchor_heads (number, workflow_id, seq);

-- What was exported, and the hash of its manifest: the next one names it.
CREATE TABLE audit_exports (
    number   integer     PRIMARY KEY CHECK (number > 0),
    made_at  timestamptz NOT NULL,
    events   bigint      NOT NULL,
    manifest char(64)    NOT NULL
);

SELECT interlock_protect(kept) FROM unnest(ARRAY['anchors', 'anchor_heads', 'audit_exports']::regclass[]) AS kept;
