"""What time alone must move: the schedule as data, and the sweeps. Nothing here speaks Celery."""
