-- What tables are held to, written once: rows that are kept, columns that are fixed, JSON within bounds, names. Whatever
-- these files refuse is refused to everyone, raw SQL included.

-- Rows that are kept ------------------------------------------------------------------------------------------------------

CREATE FUNCTION interlock.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation', HINT = 'History and definitions are kept for ever as they were written.';
END $$;

-- The same, but for what the archive has the very same of: that may leave.
CREATE FUNCTION interlock.kept() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    stands jsonb;
    named  varchar := TG_TABLE_NAME;  -- of the column's own type: compared with a `name`, its index is not used
BEGIN
    IF TG_OP = 'DELETE' THEN
        CASE TG_TABLE_NAME
            WHEN 'workflow_instances' THEN
                SELECT to_jsonb(a) - 'archived_at' INTO stands FROM interlock.archived_instances a WHERE a.id = OLD.id;
            WHEN 'workflow_transitions' THEN
                SELECT to_jsonb(a) INTO stands FROM interlock.archived_transitions a
                 WHERE a.workflow_id = OLD.workflow_id AND a.seq = OLD.seq;
            ELSE
                SELECT body INTO stands FROM interlock.archived_records
                 WHERE kind = named AND key = to_jsonb(OLD)->>TG_ARGV[0];
        END CASE;
        IF stands = to_jsonb(OLD) THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation', HINT = 'History and definitions are kept for ever as they were written.';
END $$;

-- From now on a table's rows are kept: what is `refused` of them is refused to everyone, and TRUNCATE too. `key`, where
-- they can be archived: the column that names a row there.
CREATE FUNCTION interlock.protect(protected text, refused text DEFAULT 'UPDATE OR DELETE', key text DEFAULT NULL)
    RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER kept BEFORE %s ON %s FOR EACH ROW EXECUTE FUNCTION %s', refused, protected,
                   CASE WHEN key IS NULL THEN 'interlock.refuse()' ELSE format('interlock.kept(%L)', key) END);
    EXECUTE format('CREATE TRIGGER kept_whole BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION interlock.refuse()',
                   protected);
END $$;

-- The last statement of a migration that makes triggers: an ordinary one is skipped under session_replication_role =
-- replica.
CREATE FUNCTION interlock.always() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    made record;
BEGIN
    FOR made IN SELECT t.tgrelid::regclass AS held, t.tgname AS named
                  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
                 WHERE c.relnamespace = 'interlock'::regnamespace AND NOT t.tgisinternal AND t.tgenabled <> 'A' LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', made.held, made.named);
    END LOOP;
END $$;

-- For columns that never change once they are said.
CREATE FUNCTION interlock.fixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % cannot change', TG_ARGV[0], TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;

-- JSON within bounds -------------------------------------------------------------------------------------------------------
-- How deep and how large JSON may be that is kept, for whoever writes it, raw SQL included. The numbers are those of
-- `workflows/input/limits.py`; a test holds both alike, and that every column of JSON is bounded.

-- The root is at level 0. As text: what small JSON can print is what fills the memory (`1e100000` is a number of jsonb).
-- In PL/pgSQL, not SQL: each statement prepares the conditions of its triggers anew, and would inline this in each.
CREATE FUNCTION interlock.bounded(value jsonb, most_bytes integer DEFAULT 2097152) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN octet_length(value::text)
           <= CASE WHEN value @? 'strict $.**{60} ? (@.type() == "array" || @.type() == "object")' THEN 0 ELSE most_bytes END;
END $$;

CREATE FUNCTION interlock.refuse_unbounded() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%.% is nested more than 60 deep or larger than % bytes as JSON', TG_TABLE_NAME, TG_ARGV[0], TG_ARGV[1]
        USING ERRCODE = 'check_violation', HINT = 'Keep what is deeper or larger in a file, and give its name.';
END $$;

-- From now on a column's JSON is within bounds. No CHECK: that would be asked whenever anything else of the row changes.
-- For most rows their size decides: in 200 bytes that are not compressed nothing is 60 deep (a level takes 8), and there
-- are twelve numbers at most (16 each), which print 147,456 characters each at most.
CREATE FUNCTION interlock.bound(bounded text, named text, most_bytes integer DEFAULT 2097152)
    RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER %1$I BEFORE INSERT OR UPDATE OF %2$I ON %3$s FOR EACH ROW'
                   ' WHEN ((pg_column_size(NEW.%2$I) > 200 OR pg_column_compression(NEW.%2$I) IS NOT NULL)'
                   ' AND NOT interlock.bounded(NEW.%2$I, %4$s))'
                   ' EXECUTE FUNCTION interlock.refuse_unbounded(%2$L, %4$L)',
                   'bounded_' || named, named, bounded, most_bytes);
END $$;

-- Names and reasons --------------------------------------------------------------------------------------------------------
-- What a name may hold, for whoever writes one, raw SQL included. The rule is that of
-- `workflows/input/names.py`; a test holds both alike. Names that look alike must not both exist, and none steers a terminal.

-- Printable ASCII is what nearly all names are made of: for it one look is enough.
CREATE FUNCTION interlock.is_name(value text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN value ~ '^[!-~]([ -~]*[!-~])?$'
        OR (value <> '' AND value !~ '^ | $'
            AND value !~ '[\u0001-\u001f\u007f-\u00a0\u00ad\u034f\u061c\u115f-\u1160\u1680\u17b4-\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe-\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]'
            AND value IS NFC NORMALIZED);

-- What is said once and read by people, in one line.
CREATE FUNCTION interlock.is_reason(value text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN value ~ '^[!-~]([ -~]*[!-~])?$'
        OR (value <> '' AND value !~ '^[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000]|[ \u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000]$'
            AND value !~ '[\u0001-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b\u200e-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufdd0-\ufdef\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ufffe-\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]'
            AND value IS NFC NORMALIZED);

-- The same in several lines.
CREATE FUNCTION interlock.is_words(value text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN value ~ '[^ \t\n\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000]'
        AND value !~ '[\u0001-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b\u200e-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufdd0-\ufdef\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ufffe-\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]'
        AND value IS NFC NORMALIZED;

CREATE FUNCTION interlock.are_names(list text[]) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN array_to_string(list, '') ~ '^[!-~]*$' AND NOT '' = ANY (list)
        OR NOT EXISTS (SELECT FROM unnest(list) AS each WHERE NOT interlock.is_name(each));

CREATE FUNCTION interlock.is_worded(kind text, value text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN starts_with(kind, 'empty or ') AND value = '' THEN true
                ELSE CASE replace(kind, 'empty or ', '') WHEN 'name' THEN interlock.is_name(value)
                                                         WHEN 'reason' THEN interlock.is_reason(value)
                                                         WHEN 'words' THEN interlock.is_words(value) END END;

-- A UUID's text is nobody's entity id: it means the instance that has that UUID (`workflows/input/names.py`, `entity_id`).
CREATE FUNCTION interlock.is_uuid(value text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN value ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$';

-- Asked by triggers, not by a CHECK: that would be asked whenever anything else of the row changes.
CREATE FUNCTION interlock.refuse_wording(place text, kind text, value text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF value IS NULL OR interlock.is_worded(kind, value) THEN
        RETURN;
    END IF;
    RAISE EXCEPTION 'invalid % in %: %', replace(kind, 'empty or ', ''), place, to_json(value)
        USING ERRCODE = 'check_violation',
              HINT = 'No control, invisible or direction-changing characters, no blank at the ends, composed (NFC).';
END $$;
