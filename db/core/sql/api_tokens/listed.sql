-- Issued tokens with their instances' names and last use; of a name, with an id, good for a project, where these are given.
SELECT t.token_id, i.entity_id,
       CASE WHEN t.state = 'active' AND t.expires_at <= now() THEN 'expired' ELSE t.state END AS state,
       t.name, t.role, t.projects, t.issued_by, t.reason, t.issued_at, t.expires_at, t.ended_at, t.ended_by, u.last_used_at
  FROM interlock.api_tokens t
  JOIN interlock.workflow_instances i ON i.id = t.token_id
  LEFT JOIN interlock.api_token_uses u USING (token_id)
 WHERE t.issued_at IS NOT NULL
   AND (%(name)s::text IS NULL OR t.name = %(name)s)
   AND (%(id)s::uuid IS NULL OR t.token_id = %(id)s)
   AND (%(project)s::text IS NULL OR t.projects IS NULL OR %(project)s = ANY (t.projects))
   AND (%(ended)s OR t.state = 'active' AND (t.expires_at IS NULL OR t.expires_at > now()))
 ORDER BY t.issued_at, t.token_id
