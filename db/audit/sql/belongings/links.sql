-- Links, live or archived, that are not those which the context at birth and the recorded changes give; and changes that were
-- changed themselves. Of which instances: as `bodies.sql`.
WITH asked AS (
    SELECT i.id, i.project, i.context, i.workflow_type, i.born_version, i.definition_version, i.created_at
      FROM interlock.every_instance i
     WHERE i.id > %(after)s AND i.id <= %(upto)s AND (%(ids)s::uuid[] IS NULL OR i.id = ANY(%(ids)s))
), named AS (  -- as `workers.engine.creation.links`, which read a UUID in any spelling
    SELECT a.id, a.project, a.created_at, l.body->>'role' AS role, l.body->>'inverse' AS inverse, l.body->>'type' AS type, n.target,
           translate(replace(replace(lower(n.target), 'urn:', ''), 'uuid:', ''), '{}-', '') AS hex
      FROM asked a
      JOIN interlock.workflow_definitions d ON d.type = a.workflow_type AND d.version IN (a.born_version, a.definition_version)
     CROSS JOIN LATERAL jsonb_array_elements(d.body->'links') AS l (body)
     CROSS JOIN LATERAL (SELECT a.context->(l.body->>'context_key') AS value) v
     CROSS JOIN LATERAL jsonb_array_elements(
           CASE jsonb_typeof(v.value) WHEN 'array' THEN v.value WHEN 'string' THEN jsonb_build_array(v.value) ELSE '[]' END) AS e (each)
     CROSS JOIN LATERAL (SELECT e.each #>> '{}' AS target) n
     WHERE n.target <> ''
), born AS (
    SELECT DISTINCT n.id AS source_id, n.role, n.inverse, COALESCE(u.id, o.id) AS target_id, n.created_at
      FROM named n
      LEFT JOIN interlock.every_instance u ON n.hex ~ '^[0-9a-f]{32}$'
                AND u.id = (CASE WHEN n.hex ~ '^[0-9a-f]{32}$' THEN n.hex END)::uuid AND u.workflow_type = n.type
      LEFT JOIN interlock.every_instance o ON n.hex !~ '^[0-9a-f]{32}$'
                AND (o.project, o.workflow_type, o.entity_id) = (n.project, n.type, n.target)
     WHERE COALESCE(u.id, o.id) IS NOT NULL
), changes AS (
    SELECT c.* FROM interlock.link_changes c JOIN asked a ON a.id = c.source_id
), last AS (
    SELECT DISTINCT ON (c.source_id, c.role, c.target_id) c.* FROM changes c
     ORDER BY c.source_id, c.role, c.target_id, c.number DESC
), expected AS (
    SELECT * FROM born b
     WHERE NOT EXISTS (SELECT FROM last c WHERE (c.source_id, c.role, c.target_id) = (b.source_id, b.role, b.target_id))
    UNION ALL
    SELECT source_id, role, inverse, target_id, created_at FROM last WHERE change = 'added'
), stands AS (
    SELECT l.* FROM interlock.workflow_links l JOIN asked a ON a.id = l.source_id
    UNION ALL
    SELECT l.* FROM interlock.archived_links l JOIN asked a ON a.id = l.source_id
)
SELECT source_id, format('workflow_links %%s %%s %%s %%s', source_id, role, target_id, CASE
           WHEN s.inverse IS NULL THEN 'is missing'
           WHEN e.inverse IS NULL THEN 'was added: neither its context nor a recorded change has it'
           ELSE 'was changed: its inverse or its time' END)
  FROM expected e FULL JOIN stands s USING (source_id, role, target_id)
 WHERE (s.inverse, s.created_at) IS DISTINCT FROM (e.inverse, e.created_at)
UNION ALL
SELECT c.source_id, format('link_changes %%s %%s was changed: it does not follow the one before it', c.source_id, c.number)
  FROM (SELECT c.*, lag(c.hash) OVER w AS before, row_number() OVER w AS nth FROM changes c WINDOW w AS (PARTITION BY c.source_id ORDER BY c.number)) w
  JOIN changes c USING (source_id, number)
  JOIN interlock.every_birth b ON b.id = c.source_id
 WHERE w.nth <> c.number OR c.hash IS DISTINCT FROM interlock.link_change_hash(COALESCE(w.before, b.hash), c)
UNION ALL  -- a link that moves change is as the last of them says
SELECT m.id, format('workflow_links %%s %%s was changed: its history says that it is %%s', m.id, m.said->>'role',
                    COALESCE(m.said->'to'->>'entity_id', 'to nothing'))
  FROM (SELECT DISTINCT ON (a.id, t.metadata->'relinked'->>'role') a.id, t.metadata->'relinked' AS said
          FROM asked a
          JOIN interlock.workflow_definitions d ON d.type = a.workflow_type AND d.version = a.definition_version
                                               AND d.body->'rules' @> '[{"relink": {}}]'
          JOIN interlock.every_transition t ON t.workflow_id = a.id AND t.metadata ? 'relinked'
         ORDER BY a.id, t.metadata->'relinked'->>'role', t.seq DESC) m
 WHERE ARRAY(SELECT s.target_id::text FROM stands s WHERE s.source_id = m.id AND s.role = m.said->>'role')
       <> CASE WHEN m.said->'to'->>'id' IS NULL THEN ARRAY[]::text[] ELSE ARRAY[m.said->'to'->>'id'] END
UNION ALL
SELECT c.source_id, format('link_changes %%s %%s belongs to an instance that does not exist', c.source_id, c.number)
  FROM interlock.link_changes c
 WHERE c.source_id > %(after)s AND c.source_id <= %(upto)s AND %(ids)s::uuid[] IS NULL
   AND NOT EXISTS (SELECT FROM interlock.every_instance i WHERE i.id = c.source_id)
