-- How many tasks a worker holds (DESIGN, ruling 6).
SELECT worker_id AS workflow_id, current_load FROM workers WHERE worker_id = ANY(%(ids)s)
