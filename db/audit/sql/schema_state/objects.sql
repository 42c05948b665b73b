-- Everything that protects history: each object of the schema with the digest of its definition, and who can act as its owner. Names of internal triggers
-- contain numbers that differ between databases, so those count by their constraint.
WITH objects (object, definition) AS (
    SELECT 'schema', format('%%s %%s', nspowner::regrole, nspacl) FROM pg_namespace WHERE oid = 'interlock'::regnamespace
    UNION ALL
    SELECT format('%%s %%s', CASE relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' ELSE relkind::text END,
                  relname),
           format('%%s %%s %%s %%s %%s %%s', relowner::regrole, relacl, relrowsecurity, relforcerowsecurity, reloptions,
                  CASE relkind WHEN 'v' THEN pg_get_viewdef(oid) END)
      FROM pg_class WHERE relnamespace = 'interlock'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    UNION ALL
    SELECT format('column %%s.%%s', c.relname, a.attname),
           format('%%s %%s %%s %%s %%s %%s', format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated,
                  pg_get_expr(d.adbin, d.adrelid), a.attacl)
      FROM pg_attribute a
      JOIN pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'v')
      LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
     WHERE c.relnamespace = 'interlock'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT format('constraint %%s.%%s', c.relname, k.conname),
           format('%%s %%s %%s', pg_get_constraintdef(k.oid), k.convalidated,
                  ARRAY(SELECT format('%%s %%s %%s', t.tgrelid::regclass, t.tgtype, t.tgenabled) FROM pg_trigger t
                         WHERE t.tgconstraint = k.oid AND t.tgisinternal ORDER BY 1))
      FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
     WHERE k.connamespace = 'interlock'::regnamespace
    UNION ALL
    SELECT format('index %%s', i.indexrelid::regclass::text), format('%%s %%s', pg_get_indexdef(i.indexrelid), i.indisvalid)
      FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
     WHERE c.relnamespace = 'interlock'::regnamespace
    UNION ALL
    SELECT format('trigger %%s.%%s', c.relname, t.tgname), format('%%s %%s', pg_get_triggerdef(t.oid), t.tgenabled)
      FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
     WHERE c.relnamespace = 'interlock'::regnamespace AND NOT t.tgisinternal
    UNION ALL
    SELECT format('rule %%s.%%s', c.relname, r.rulename), format('%%s %%s', pg_get_ruledef(r.oid), r.ev_enabled)
      FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
     WHERE c.relnamespace = 'interlock'::regnamespace
    UNION ALL
    SELECT format('policy %%s.%%s', c.relname, p.polname),
           format('%%s %%s %%s %%s %%s', p.polcmd, p.polpermissive, p.polroles::regrole[], pg_get_expr(p.polqual, p.polrelid),
                  pg_get_expr(p.polwithcheck, p.polrelid))
      FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
     WHERE c.relnamespace = 'interlock'::regnamespace
    UNION ALL
    SELECT format('function %%s', oid::regprocedure::text), format('%%s %%s %%s', pg_get_functiondef(oid), proowner::regrole, proacl)
      FROM pg_proc WHERE pronamespace = 'interlock'::regnamespace AND prokind IN ('f', 'p')
    UNION ALL  -- who can act as the owner, superusers apart; and no role of ours is to be a member of another of ours
    SELECT format('member %%s of interlock_owner', oid::regrole), 'directly or not'
      FROM pg_roles WHERE NOT rolsuper AND rolname <> 'interlock_owner' AND pg_has_role(oid, 'interlock_owner', 'MEMBER')
    UNION ALL
    SELECT DISTINCT format('member %%s of %%s', m.member::regrole, m.roleid::regrole), 'directly'
      FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.member JOIN pg_roles g ON g.oid = m.roleid
     WHERE r.rolname IN ('interlock_engine', 'interlock_client', 'interlock_auditor')
       AND g.rolname IN ('interlock_engine', 'interlock_client', 'interlock_auditor')
)
SELECT object, encode(sha256(convert_to(definition, 'UTF8')), 'hex') FROM objects ORDER BY object COLLATE "C"
