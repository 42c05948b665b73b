-- Links that change after a birth. What an instance is linked to at birth follows from its context and its definition; each later
-- change is a row here, which is kept. So every link can be derived, and one that was changed by others is found.

CREATE TABLE interlock.link_changes (
    source_id  uuid         NOT NULL,
    number     integer      NOT NULL CHECK (number > 0),  -- of the source's changes
    change     varchar(10)  NOT NULL CHECK (change IN ('added', 'removed')),
    role       varchar(100) NOT NULL,
    inverse    varchar(100) NOT NULL,
    target_id  uuid         NOT NULL,
    created_at timestamptz  NOT NULL,  -- the link's
    changed_at timestamptz  NOT NULL,
    login      varchar(63)  NOT NULL,
    hash       bytea        NOT NULL,  -- over the row and the hash before it; the first follows the birth of the source
    PRIMARY KEY (source_id, number)
);
CREATE INDEX link_changes_link ON interlock.link_changes (source_id, role, target_id);

CREATE FUNCTION interlock.link_change_hash(before bytea, c interlock.link_changes) RETURNS bytea
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN interlock.chained(
        before, convert_to(c.source_id::text, 'UTF8'), convert_to(c.number::text, 'UTF8'), convert_to(c.change, 'UTF8'),
        convert_to(c.role, 'UTF8'), convert_to(c.inverse, 'UTF8'), convert_to(c.target_id::text, 'UTF8'),
        convert_to(interlock.micros(c.created_at), 'UTF8'), convert_to(interlock.micros(c.changed_at), 'UTF8'),
        convert_to(c.login, 'UTF8'));
END $$;

CREATE FUNCTION interlock.note_link(change text, l interlock.workflow_links) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    noted interlock.link_changes;
    before bytea;
BEGIN
    SELECT c.number, c.hash INTO noted.number, before FROM interlock.link_changes c
     WHERE c.source_id = l.source_id ORDER BY c.number DESC LIMIT 1;
    IF NOT FOUND THEN
        SELECT interlock.birth_hash(i) INTO before FROM interlock.workflow_instances i WHERE i.id = l.source_id;
    END IF;
    noted := (l.source_id, COALESCE(noted.number, 0) + 1, change, l.role, l.inverse, l.target_id, l.created_at, now(),
              session_user, NULL);
    noted.hash := interlock.link_change_hash(before, noted);
    INSERT INTO interlock.link_changes SELECT noted.*;
END $$;

CREATE FUNCTION interlock.link_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (
        SELECT FROM interlock.archived_links a
         WHERE (a.source_id, a.role, a.target_id) = (OLD.source_id, OLD.role, OLD.target_id)) THEN
        RETURN NULL;
    END IF;
    PERFORM interlock.note_link('removed', OLD);
    IF TG_OP = 'UPDATE' THEN
        PERFORM interlock.note_link('added', NEW);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER noted AFTER UPDATE OR DELETE ON interlock.workflow_links
    FOR EACH ROW EXECUTE FUNCTION interlock.link_changed();

-- All links of a statement together: nearly all are made at their source's birth, before anything was changed, and are no change.
-- Scalar subqueries: of EXISTS and joins, PostgreSQL might read a whole table (so in `not_archived`, `commands_made`, `born_tasks`).
CREATE FUNCTION interlock.links_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM interlock.note_link('added', added)
       FROM made added
      WHERE (SELECT i.created_at = now() FROM interlock.workflow_instances i WHERE i.id = added.source_id) IS NOT TRUE
         OR (SELECT true FROM interlock.link_changes c WHERE c.source_id = added.source_id LIMIT 1);
    RETURN NULL;
END $$;

CREATE TRIGGER noted_new AFTER INSERT ON interlock.workflow_links REFERENCING NEW TABLE AS made
    FOR EACH STATEMENT EXECUTE FUNCTION interlock.links_added();

-- Only a change of a link writes here.
CREATE FUNCTION interlock.by_links_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'link_changes is written by PostgreSQL itself, when a link changes' USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER by_links_only BEFORE INSERT ON interlock.link_changes FOR EACH ROW WHEN (pg_trigger_depth() = 0)
    EXECUTE FUNCTION interlock.by_links_only();

-- Whether a move of this transaction takes a link away: its definition declares that it changes links of this role, and its
-- event says from what.
CREATE FUNCTION interlock.moved_away(link interlock.link_changes) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM interlock.workflow_transitions t
          JOIN interlock.workflow_definitions d ON (d.type, d.version) = (t.workflow_type, t.definition_version)
         WHERE t.workflow_id = link.source_id AND t.xid = pg_current_xact_id()
           AND t.metadata->'relinked' @> jsonb_build_object('role', link.role, 'from', jsonb_build_array(
                   jsonb_build_object('id', link.target_id)))
           AND d.body->'rules' @> jsonb_build_array(jsonb_build_object(
                   'trigger', t.trigger, 'relink', jsonb_build_object('role', link.role))));
END $$;

-- At commit: what a link named is still named, itself or by what took its place; or a move took it away; or it is waived, which
-- an operator's override decides. No link just goes.
CREATE FUNCTION interlock.link_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT interlock.moved_away(NEW) AND NOT EXISTS (
        WITH RECURSIVE place AS (
            SELECT NEW.target_id AS id
            UNION
            SELECT r.source_id FROM place p JOIN interlock.workflow_links r ON r.target_id = p.id AND r.role = 'retry_of'
        )
        SELECT FROM interlock.workflow_links l JOIN place p ON p.id = l.target_id
         WHERE l.source_id = NEW.source_id
           AND (l.role = NEW.role
                OR l.role = 'waived'
                   AND (EXISTS (SELECT FROM interlock.workflow_transitions t
                                 WHERE t.xid = pg_current_xact_id() AND t.metadata ? 'override')
                        OR EXISTS (SELECT FROM interlock.tasks WHERE task_id IN (l.source_id, l.target_id) AND left_out)
                        OR EXISTS (SELECT FROM interlock.patch_ledger_entries e JOIN interlock.tasks t ON t.task_id = e.task_id
                                    WHERE e.ledger_id = l.source_id AND t.left_out)))) THEN
        RAISE EXCEPTION 'link % of % cannot be deleted or changed: links are waived by overrides, changed by moves that '
                        'say so, or follow what takes their target''s place', NEW.role, NEW.source_id
            USING ERRCODE = 'restrict_violation', HINT = 'interlock task unblock REF --by WHO --reason WHY';
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER stays AFTER INSERT ON interlock.link_changes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.change = 'removed') EXECUTE FUNCTION interlock.link_stays();
