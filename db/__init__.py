"""Tables, constraints, migrations and every query. PostgreSQL is the record; no decision is made here."""
