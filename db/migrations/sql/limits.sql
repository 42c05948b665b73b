-- Limits (docs/spec/limit.md): how much may run at once, or start in a period. A row follows its limit's events, and goes with its end.
CREATE TABLE interlock.limits (
    limit_id    uuid             PRIMARY KEY,
    project     varchar(100)     NOT NULL,
    kind        varchar(10)      NOT NULL CHECK (kind IN ('project', 'type', 'tool', 'key')),
    name        varchar(100)     NOT NULL,  -- `x*`: each name that begins with `x`, counted by itself
    at_once     integer          CHECK (at_once > 0),
    starts      integer          CHECK (starts > 0),
    per_seconds double precision CHECK (per_seconds > 0),
    UNIQUE (project, kind, name),
    CHECK (kind <> 'project' OR name = project),
    CHECK (num_nonnulls(starts, per_seconds) <> 1 AND num_nonnulls(at_once, starts) > 0)
);

-- What started under a limit on starts, as long as it counts.
CREATE TABLE interlock.limit_starts (
    id         bigint       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project    varchar(100) NOT NULL,
    kind       varchar(10)  NOT NULL,
    name       varchar(100) NOT NULL,
    started_at timestamptz  NOT NULL
);
CREATE INDEX limit_starts_newest ON interlock.limit_starts (project, kind, name, started_at);

-- The row of a limit that is in force: the terms in its instance's context.
CREATE FUNCTION interlock.limit_of(i interlock.workflow_instances) RETURNS interlock.limits LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT i.id, i.project, i.context->>'kind', i.context->>'name', (i.context->>'at_once')::integer, (i.context->>'starts')::integer,
           (i.context->>'per_seconds')::double precision
$$;

CREATE FUNCTION interlock.moved_limit(new interlock.workflow_transitions) RETURNS void LANGUAGE sql AS $$
    INSERT INTO interlock.limits
    SELECT l.* FROM interlock.workflow_instances i, interlock.limit_of(i) l WHERE i.id = new.workflow_id AND new.to_state = 'in_force';
    DELETE FROM interlock.limits WHERE limit_id = new.workflow_id AND new.to_state <> 'in_force'
$$;

-- Before a row of `limits` or `budgets`: it is what its instance's history says (LIMIT-1, BRAKE-1): it comes and goes with the events of
-- its instance, with the terms in the instance's context. Arguments: the type of these instances, and their column.
CREATE FUNCTION interlock.terms_in_history() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    its      CONSTANT jsonb := to_jsonb(CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END) - 'uses';
    last     CONSTANT interlock.workflow_transitions := interlock.last_event((its->>TG_ARGV[1])::uuid);
    in_force CONSTANT boolean := COALESCE(last.workflow_type = TG_ARGV[0] AND last.to_state = 'in_force', false);
BEGIN
    IF in_force <> (TG_OP <> 'DELETE')
       OR in_force AND NOT EXISTS (
           SELECT FROM interlock.workflow_instances i
            WHERE i.id = (its->>TG_ARGV[1])::uuid
              AND its = CASE TG_ARGV[0] WHEN 'limit' THEN to_jsonb(interlock.limit_of(i)) ELSE to_jsonb(interlock.budget_of(i)) - 'uses' END) THEN
        RAISE EXCEPTION 'the % on % of project % is not what its history says',
            TG_ARGV[0], concat_ws(' ', its->>'kind', its->>'name', its->>'resource'), its->>'project'
            USING ERRCODE = 'check_violation', HINT = format('Set or remove it instead: interlock %s set | remove', TG_ARGV[0]);
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE TRIGGER limit_in_history BEFORE INSERT OR UPDATE OR DELETE ON interlock.limits FOR EACH ROW
    EXECUTE FUNCTION interlock.terms_in_history('limit', 'limit_id');

-- As which name a limit counts what has this type, tool and key; NULL: it does not.
CREATE FUNCTION interlock.counts_as(l interlock.limits, type text, tool text, key text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    named CONSTANT text := CASE l.kind WHEN 'project' THEN l.name WHEN 'type' THEN type WHEN 'tool' THEN tool ELSE key END;
BEGIN
    RETURN CASE WHEN named = l.name OR right(l.name, 1) = '*' AND starts_with(named, left(l.name, -1)) THEN named END;
END $$;

-- Whether the start of a job is accepted and not decided yet: it holds the job's place meanwhile.
CREATE FUNCTION interlock.starts_job(job uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM interlock.trigger_requests r
                    WHERE r.workflow_id = job AND r.trigger = 'allocate_resources' AND r.status IN ('pending', 'scheduled'));
END $$;

-- What holds a place now: claims that have not ended, even if they are revoked, because their workers may still be at work; and leases
-- that nobody has taken back; jobs that run, or whose start is accepted. `holder`: the worker, the process that has the lease, or who
-- submitted the job.
CREATE VIEW interlock.limited_work AS
SELECT i.project, 'task' AS type, t.tool, t.limit_key, c.task_id AS workflow_id, w.name AS holder, c.claimed_at AS since
  FROM interlock.task_claims c
  JOIN interlock.tasks t USING (task_id)
  JOIN interlock.workers w ON w.worker_id = c.worker_id
  JOIN interlock.workflow_instances i ON i.id = c.task_id
 WHERE c.ended_at IS NULL
UNION ALL
SELECT i.project, i.workflow_type, NULL, e.limit_key, e.workflow_id, e.leased_by, NULL
  FROM interlock.effects e
  JOIN interlock.workflow_instances i ON i.id = e.workflow_id
 WHERE e.status = 'leased'
UNION ALL
SELECT i.project, i.workflow_type, i.context->>'tool', NULL, j.id, i.created_by, j.started_at
  FROM interlock.jobs j
  JOIN interlock.workflow_instances i ON i.id = j.id
 WHERE j.completed_at IS NULL AND (j.status = 'RUNNING' OR interlock.starts_job(j.id));

-- The names that limits count, each with how many places are held, how many starts count, and how many more may start (`room`).
-- `free_at`: when the oldest start that counts no longer does, if `starts` are used up. `only_limits`, `only_names`: of these; NULL: of
-- all. A pattern's names are those in use: any other has all its room.
CREATE FUNCTION interlock.limit_places(only_limits uuid[], only_names text[]) RETURNS TABLE (
    limit_id uuid, project varchar, kind varchar, pattern varchar, name text, at_once integer, starts integer,
    per_seconds double precision, held integer, started integer, free_at timestamptz, room integer)
    LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH chosen AS MATERIALIZED (
        SELECT l.*, l AS whole FROM interlock.limits l WHERE only_limits IS NULL OR l.limit_id = ANY (only_limits)
    ), holding AS MATERIALIZED (
        SELECT c.limit_id, interlock.counts_as(c.whole, w.type, w.tool, w.limit_key) AS name, count(*)::integer AS held
          FROM chosen c JOIN interlock.limited_work w USING (project) GROUP BY 1, 2
    ), began AS MATERIALIZED (
        SELECT c.limit_id, s.name::text, count(*)::integer AS started,
               (array_agg(s.started_at ORDER BY s.started_at DESC))[max(c.starts)] + make_interval(secs => max(c.per_seconds)) AS free_at
          FROM chosen c
          JOIN interlock.limit_starts s
            ON (s.project, s.kind) = (c.project, c.kind) AND s.started_at > clock_timestamp() - make_interval(secs => c.per_seconds)
         WHERE (only_names IS NULL OR s.name = ANY (only_names)) AND interlock.counts_as(c.whole, s.name, s.name, s.name) IS NOT NULL
         GROUP BY 1, 2
    ), used AS (
        SELECT c.limit_id, c.name::text FROM chosen c WHERE right(c.name, 1) <> '*'
        UNION SELECT h.limit_id, h.name FROM holding h UNION SELECT b.limit_id, b.name FROM began b
        UNION SELECT c.limit_id, n FROM chosen c, unnest(only_names) AS n WHERE interlock.counts_as(c.whole, n, n, n) IS NOT NULL
    )
    SELECT c.limit_id, c.project, c.kind, c.name, u.name, c.at_once, c.starts, c.per_seconds,
           COALESCE(h.held, 0), COALESCE(b.started, 0), b.free_at,
           GREATEST(0, LEAST(c.at_once - COALESCE(h.held, 0), c.starts - COALESCE(b.started, 0)))
      FROM used u JOIN chosen c USING (limit_id)
      LEFT JOIN holding h ON (h.limit_id, h.name) = (u.limit_id, u.name)
      LEFT JOIN began b ON (b.limit_id, b.name) = (u.limit_id, u.name)
     WHERE u.name IS NOT NULL AND (only_names IS NULL OR u.name = ANY (only_names));
END $$;

-- Refuse a transaction that sees what was committed before its first statement only: whatever ends or holds a right since, it would not
-- see it, and the locks of limits would not keep it from counting what is no more. A serializable one too, because PostgreSQL warns of
-- conflicts between serializable ones only.
CREATE FUNCTION interlock.sees_what_is() RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT LIKE 'read %' THEN
        RAISE EXCEPTION 'this is accepted in a transaction that is READ COMMITTED only, and this one is %',
                        upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'invalid_transaction_state', HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED';
    END IF;
END $$;

-- Take a place under all limits that count this, or none: false if one has no room. They are locked in one order, until the caller's
-- commit, so what is read here is newer than whatever the last one who took a place did.
CREATE FUNCTION interlock.take_place(its_project text, its_type text, its_tool text, its_key text) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    locked CONSTANT uuid[] := ARRAY(
        SELECT l.limit_id FROM interlock.limits l
         WHERE l.project = its_project AND interlock.counts_as(l, its_type, its_tool, its_key) IS NOT NULL
         ORDER BY l.limit_id FOR NO KEY UPDATE);
BEGIN
    IF locked = '{}' THEN
        RETURN true;
    ELSIF EXISTS (
        SELECT FROM interlock.limits l
          JOIN interlock.limit_places(locked, ARRAY[its_project, its_type, its_tool, its_key]) p USING (limit_id)
         WHERE p.room = 0 AND p.name = interlock.counts_as(l, its_type, its_tool, its_key)) THEN
        RETURN false;
    END IF;
    WITH counted AS (
        SELECT l.project, l.kind, interlock.counts_as(l, its_type, its_tool, its_key) AS name,
               clock_timestamp() - make_interval(secs => max(l.per_seconds)) AS counts_since
          FROM interlock.limits l WHERE l.limit_id = ANY (locked) AND l.starts IS NOT NULL GROUP BY 1, 2, 3
    ), forgotten AS (
        DELETE FROM interlock.limit_starts s USING counted c
         WHERE (s.project, s.kind, s.name) = (c.project, c.kind, c.name) AND s.started_at <= c.counts_since
    )
    INSERT INTO interlock.limit_starts (project, kind, name, started_at)
    SELECT c.project, c.kind, c.name, clock_timestamp() FROM counted c;
    RETURN true;
END $$;

-- Take the place of a job that is about to start, in the transaction that asks for its start; true too if that was asked for before.
CREATE FUNCTION interlock.take_job_place(job uuid) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM interlock.sees_what_is();
    RETURN NOT EXISTS (SELECT FROM interlock.limits) OR interlock.starts_job(job)
        OR (SELECT interlock.take_place(i.project, i.workflow_type, i.context->>'tool', NULL)
              FROM interlock.workflow_instances i WHERE i.id = job);
END $$;

-- An effect is leased only within the limits that count it; otherwise its row stays as it is.
CREATE FUNCTION interlock.within_limits() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM interlock.sees_what_is();
    IF EXISTS (SELECT FROM interlock.limits)
       AND NOT (SELECT interlock.take_place(i.project, i.workflow_type, NULL, NEW.limit_key)
                  FROM interlock.workflow_instances i WHERE i.id = NEW.workflow_id) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER within_limits BEFORE UPDATE OF status ON interlock.effects FOR EACH ROW
    WHEN (OLD.status <> 'leased' AND NEW.status = 'leased') EXECUTE FUNCTION interlock.within_limits();

-- Of each project, the names under which nothing more may start now: `project`, `type T`, `tool T`, `key K`.
CREATE FUNCTION interlock.full_limits() RETURNS TABLE (project varchar, named text[]) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT p.project, array_agg(DISTINCT CASE p.kind WHEN 'project' THEN 'project' ELSE p.kind || ' ' || p.name END)
      FROM interlock.limit_places(NULL, NULL) p WHERE p.room = 0 GROUP BY p.project;
END $$;

-- Whether what has this type, tool and key is among such names.
CREATE FUNCTION interlock.held_back(named text[], type text, tool text, key text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN named && ARRAY['project', 'type ' || type, 'tool ' || tool, 'key ' || key];

-- By such names, the tasks of a run that a worker may not claim now, or nobody: their tools' breakers turn calls away, their limits have no
-- room, or a brake is on.
-- PL/pgSQL, because it is asked at each claim: PostgreSQL prepares it once a session.
CREATE FUNCTION interlock.held_back_in(run uuid, worker text DEFAULT NULL) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    its_project text := (SELECT project FROM interlock.workflow_instances WHERE id = run);
    found       text[] := ARRAY(SELECT 'tool ' || b.tool_id FROM interlock.circuit_breakers b
                                 WHERE b.project = its_project AND interlock.turned_away_until(b) IS NOT NULL);
BEGIN
    IF EXISTS (SELECT FROM interlock.limits WHERE project = its_project) THEN
        found := found || (SELECT f.named FROM interlock.full_limits() f WHERE f.project = its_project);
    END IF;
    IF EXISTS (SELECT FROM interlock.brakes b
                WHERE b.project = its_project AND (b.kind, b.name) IN (('project', its_project), ('run', run::text), ('actor', worker))) THEN
        found := found || 'project'::text;
    END IF;
    RETURN found;
END $$;

-- Effects that are due: of those that share an exclusive key only the oldest, and none while one of them is leased.
CREATE VIEW interlock.due_effects AS
SELECT e.id, e.name, e.queue, e.token, e.not_before, e.exclusive, e.limit_key, i.project, i.workflow_type,
       i.workflow_type || '/' || i.entity_id AS entity  -- what its wake-up says to people
  FROM interlock.effects e JOIN interlock.workflow_instances i ON i.id = e.workflow_id
 WHERE e.status = 'pending' AND e.not_before <= now()
   AND NOT EXISTS (SELECT FROM interlock.effects o WHERE o.exclusive = e.exclusive AND o.status = 'leased')
   AND NOT EXISTS (SELECT FROM interlock.effects o
                    WHERE o.exclusive = e.exclusive AND o.status = 'pending' AND o.not_before <= now()
                      AND (o.not_before, o.id) < (e.not_before, e.id));

-- Due effects that wait for a limit: no node is to blame.
CREATE FUNCTION interlock.effects_without_room() RETURNS SETOF uuid LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT d.id FROM interlock.due_effects d JOIN interlock.full_limits() f USING (project)
     WHERE interlock.held_back(f.named, d.workflow_type, NULL, d.limit_key);
END $$;

-- Of the due effects of one project, type and key, the oldest, as many as their limits have room for. So none of them stands in the way
-- of others, and none is woken in vain.
CREATE FUNCTION interlock.startable_effects() RETURNS SETOF uuid LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    WITH waiting AS MATERIALIZED (
        SELECT d.*, row_number() OVER (PARTITION BY d.project, d.workflow_type, d.limit_key ORDER BY d.not_before, d.id) AS place
          FROM interlock.due_effects d
    ), places AS MATERIALIZED (
        SELECT * FROM interlock.limit_places(NULL, NULL)
    ), alike AS MATERIALIZED (
        SELECT g.project, g.workflow_type, g.limit_key, min(COALESCE(p.room, LEAST(l.at_once, l.starts))) AS room
          FROM (SELECT DISTINCT project, workflow_type, limit_key FROM waiting) g
          LEFT JOIN interlock.limits l
                 ON l.project = g.project AND interlock.counts_as(l, g.workflow_type, NULL, g.limit_key) IS NOT NULL
          LEFT JOIN places p ON p.limit_id = l.limit_id AND p.name = interlock.counts_as(l, g.workflow_type, NULL, g.limit_key)
         GROUP BY 1, 2, 3
    )
    SELECT w.id FROM waiting w JOIN alike a
        ON (w.project, w.workflow_type) = (a.project, a.workflow_type) AND w.limit_key IS NOT DISTINCT FROM a.limit_key
     WHERE w.place <= a.room OR a.room IS NULL;
END $$;
