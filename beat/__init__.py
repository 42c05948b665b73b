"""The periodic work: the schedule as data, and the sweeps. Nothing here imports Celery."""
