"""What a supervisor watches over: its workers and its jobs (MVP, seed 002)."""
