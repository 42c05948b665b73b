"""The hand of a supervisor: its workers, its jobs, and what is done about their errors (MVP, seed 002)."""
