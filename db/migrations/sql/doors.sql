-- What clients may write: each function runs with the owner's rights, and the triggers on its table judge what it is given, by
-- who is logged in (`session_user`). Rows come as one JSON array.

-- Accept requests: durable once this commits. One whose request_id is known already is left as it is.
-- They are numbered in the caller's order and written in that of their ids: callers who fire the same requests, each in
-- an order of its own, wait for one another in a queue, never in a circle.
-- `counting`: whether repetitions are counted; not by who asks again for each of those that are known.
CREATE FUNCTION interlock.accept_all(rows json, counting boolean DEFAULT true)
    RETURNS TABLE (request_id varchar, seq bigint, partition smallint, workflow_id uuid, trigger varchar, status varchar, result jsonb)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    accepted bigint;
BEGIN
    RETURN QUERY
    INSERT INTO interlock.trigger_requests AS t (seq, request_id, fingerprint, workflow_id, trigger, triggered_by, metadata,
                                       origin, authority, proof, bound_version, status, not_before, trace)
           OVERRIDING SYSTEM VALUE
    SELECT n.seq, n.request_id, decode(n.fingerprint, 'hex'), n.workflow_id, n.trigger, n.triggered_by,
           COALESCE(n.metadata, '{}'), n.origin,
           COALESCE(n.authority, 'anyone'), n.proof, n.bound_version,
           CASE WHEN due.at > now() THEN 'scheduled' ELSE 'pending' END, due.at, n.trace
      FROM (SELECT nextval('interlock.trigger_requests_seq_seq') AS seq, r.*
              FROM json_to_recordset(rows) AS r (
                       request_id text, fingerprint text, workflow_id uuid, trigger text, triggered_by text, metadata jsonb,
                       origin text, authority text, proof text, bound_version integer, not_before timestamptz,
                       delay_seconds double precision, trace text)) n,
           LATERAL (SELECT GREATEST(now(), COALESCE(n.not_before, now() + make_interval(secs => n.delay_seconds), now()))
                           AS at) due
     ORDER BY n.request_id COLLATE "C", n.seq
        ON CONFLICT (request_id) DO NOTHING
    RETURNING t.request_id, t.seq, t.partition, t.workflow_id, t.trigger, t.status, t.result;
    GET DIAGNOSTICS accepted = ROW_COUNT;
    IF counting AND accepted < json_array_length(rows) AND rows->0->>'origin' = 'agent' THEN  -- Interlock's own are repeated by sweeps
        INSERT INTO interlock.metric_deltas (name, labels, value)
        VALUES ('interlock_idempotency_hits_total', '{}', json_array_length(rows) - accepted);
    END IF;
END $$;

-- Accept one that is due at once, and asks for no right, made with a token or without: plain parameters cost a third less than rows.
-- Returns its status; NULL: it is known.
CREATE FUNCTION interlock.accept_one(
    id text, body_fingerprint bytea, instance uuid, fired text, who text, said jsonb, traced text, token_proof text DEFAULT NULL)
    RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    accepted text;
BEGIN
    INSERT INTO interlock.trigger_requests AS t (request_id, fingerprint, workflow_id, trigger, triggered_by, metadata, trace, proof)
    VALUES (id, body_fingerprint, instance, fired, who, said, traced, token_proof)
        ON CONFLICT (request_id) DO NOTHING
    RETURNING t.status INTO accepted;
    RETURN accepted;
END $$;

-- Create instances; one that exists already, be it in the archive, is left as it is. Returns the ids of the new ones.
CREATE FUNCTION interlock.create_all(rows json) RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    INSERT INTO interlock.workflow_instances (id, workflow_type, definition_version, current_state, entity_id, project, context,
                                    created_by, born_proof)
    SELECT n.id, n.workflow_type, n.definition_version, n.current_state, n.entity_id, n.project, n.context, n.created_by, n.born_proof
      FROM json_to_recordset(rows) AS n (
               id uuid, workflow_type text, definition_version text, current_state text, entity_id text, project text,
               context jsonb, created_by text, born_proof text)
     WHERE (SELECT count(*) FROM interlock.archived_instances a  -- no NOT EXISTS: joining would change the order of the rows
             WHERE (a.project, a.workflow_type, a.entity_id) = (n.project, n.workflow_type, n.entity_id)) = 0
        ON CONFLICT (project, workflow_type, entity_id) DO NOTHING
    RETURNING id;
END $$;

-- Refuse what has ended, and keep the others from ending before this commits.
CREATE FUNCTION interlock.must_be_open(ids uuid[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ended record;
BEGIN
    PERFORM FROM interlock.workflow_instances WHERE id = ANY (ids) ORDER BY id FOR SHARE;
    SELECT i.workflow_type, i.entity_id, i.current_state INTO ended
      FROM interlock.workflow_instances i
      JOIN interlock.definition_states s ON (s.type, s.version, s.state) = (i.workflow_type, i.definition_version, i.current_state)
     WHERE i.id = ANY (ids) AND s.terminal LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% % has ended (%): nothing is added to it. Name another', ended.workflow_type, ended.entity_id, ended.current_state
            USING ERRCODE = 'check_violation';
    END IF;
END $$;

-- Link new instances to those their context names: by UUID, or by entity id within the project.
CREATE FUNCTION interlock.link_all(rows json) RETURNS TABLE (source_id uuid, role varchar, target_id uuid)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    INSERT INTO interlock.workflow_links AS t (source_id, role, inverse, target_id)  -- OFFSET 0: each is looked up by itself (ADR 42)
    SELECT n.source_id, n.role, n.inverse, i.id
      FROM json_to_recordset(rows) AS n (
               source_id uuid, role text, inverse text, project text, type text, target text, target_id uuid)
      CROSS JOIN LATERAL (
            SELECT id FROM (SELECT id, workflow_type FROM interlock.workflow_instances WHERE id = n.target_id OFFSET 0) by_id
             WHERE workflow_type = n.type
            UNION ALL
            SELECT id FROM interlock.workflow_instances
             WHERE n.target_id IS NULL
               AND project = n.project AND workflow_type = n.type AND entity_id = n.target
            OFFSET 0) i
        ON CONFLICT DO NOTHING
    RETURNING t.source_id, t.role, t.target_id;
    IF EXISTS (SELECT FROM json_to_recordset(rows) AS n (open boolean) WHERE n.open) THEN
        PERFORM interlock.must_be_open(ARRAY(
            SELECT l.target_id FROM json_to_recordset(rows) AS n (source_id uuid, role text, open boolean)
             CROSS JOIN LATERAL (SELECT target_id FROM interlock.workflow_links
                                  WHERE (source_id, role) = (n.source_id, n.role) OFFSET 0) l
             WHERE n.open));
    END IF;
END $$;

-- What a client's login may not create: what Interlock's parts carry out, phases, approvals, which hold others' triggers, narrowed
-- rights, what goes out to others, and logs of others' refusals. A brake needs a cause, whoever creates it.
CREATE FUNCTION interlock.of_engine_only() RETURNS SETOF text LANGUAGE sql IMMUTABLE AS $$
    SELECT type FROM interlock.kinds()
    UNION VALUES ('approval'), ('refusal_log'), ('narrowing'), ('limit'), ('handover'), ('budget'), ('brake'), ('subscription'),
                 ('regression'), ('phase'), ('redrive'), ('rollback')
$$;

CREATE FUNCTION interlock.not_by_clients() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.workflow_type = 'brake' THEN
        IF NOT interlock.has_cause(NEW) THEN
            RAISE EXCEPTION 'nothing gives cause for the brake %', NEW.entity_id
                USING ERRCODE = 'insufficient_privilege', HINT = 'interlock brake put --help';
        END IF;
    ELSIF NOT interlock.is_engine() AND NOT (NEW.workflow_type = 'refusal_log' AND NEW.entity_id = session_user) THEN
        RAISE EXCEPTION 'creating a % needs a member of interlock_engine', NEW.workflow_type
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;

DO $$
BEGIN
    EXECUTE format('CREATE TRIGGER not_by_clients BEFORE INSERT ON interlock.workflow_instances FOR EACH ROW
        WHEN (NEW.workflow_type IN (%s) AND NEW.definition_version NOT LIKE ''0.%%'')
        EXECUTE FUNCTION interlock.not_by_clients()',
        (SELECT string_agg(quote_literal(type), ', ') FROM interlock.of_engine_only() AS k (type)));
END $$;

-- Whether a row that can be seen was written by this very transaction, or by a part of it that a savepoint began: its writer is
-- still under way, and nobody sees what others have not committed. `xmin` lacks the epoch: the nearest to this transaction's is meant.
CREATE FUNCTION interlock.written_here(writer xid) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    epoch CONSTANT bigint := 4294967296;
    here  CONSTANT bigint := pg_current_xact_id()::text::bigint;
    whole CONSTANT bigint := here - epoch / 2
                             + ((writer::text::bigint - here % epoch + epoch / 2) % epoch + epoch) % epoch;
BEGIN
    RETURN whole >= here AND pg_xact_status(whole::text::xid8) IS NOT DISTINCT FROM 'in progress';
END $$;

-- Clients link what they create, as its definition says. What is created with a token is linked to what the token is good for.
CREATE FUNCTION interlock.links_own() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    by_token  CONSTANT text := (SELECT i.born_proof FROM interlock.workflow_instances i
                                 WHERE i.id = NEW.source_id AND i.born_proof IS NOT NULL AND i.version = 0
                                   AND interlock.written_here(i.xmin));
    uncovered text;
BEGIN
    IF by_token IS NOT NULL THEN
        SELECT interlock.not_covered(a, o.project, o.workflow_type, o.id) INTO uncovered
          FROM interlock.api_tokens a, interlock.workflow_instances o
         WHERE a.token_id = interlock.token_of(by_token) AND o.id = NEW.target_id;
        IF uncovered IS NOT NULL THEN
            RAISE EXCEPTION 'an instance cannot be linked to %: %', NEW.target_id, uncovered
                USING ERRCODE = 'insufficient_privilege', CONSTRAINT = 'by_token', HINT = 'interlock token list';
        END IF;
    END IF;
    IF interlock.is_engine() THEN  -- asked by itself, this is no query
        RETURN NEW;
    END IF;
    IF NOT EXISTS (SELECT FROM interlock.workflow_instances i
                     JOIN interlock.workflow_definitions d ON (d.type, d.version) = (i.workflow_type, i.definition_version)
                     JOIN interlock.workflow_instances o ON o.id = NEW.target_id
                    CROSS JOIN jsonb_array_elements(d.body->'links') AS declared
                    WHERE i.id = NEW.source_id AND interlock.written_here(i.xmin)
                      AND (declared->>'role', declared->>'inverse', declared->>'type')
                          = (NEW.role, NEW.inverse, o.workflow_type)) THEN
        RAISE EXCEPTION 'a client links only what it creates in the same transaction, as its definition declares'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER links_own BEFORE INSERT ON interlock.workflow_links FOR EACH ROW EXECUTE FUNCTION interlock.links_own();

SELECT interlock.always();
