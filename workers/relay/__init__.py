"""Carries history to its destinations in commit order: counters, the Redis stream, the journal."""
