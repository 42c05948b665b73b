"""The embedded PostgreSQL and Valkey: users, directories, ports."""
