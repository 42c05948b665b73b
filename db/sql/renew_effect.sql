-- Hold an effect's lease for longer, under the token it was claimed with. Zero rows: it ran out, or passed to another.
UPDATE interlock.effects SET lease_until = now() + make_interval(secs => %(lease_seconds)s)
 WHERE id = %(id)s AND status = 'leased' AND token = %(token)s AND lease_until > now()
