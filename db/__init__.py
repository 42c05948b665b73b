"""Tables, constraints, migrations and every query. PostgreSQL is the truth; nothing in here decides."""
