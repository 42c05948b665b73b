-- How many tasks a worker holds (WORKER-10).
SELECT worker_id AS workflow_id, current_load FROM interlock.workers WHERE worker_id = ANY(%(ids)s)
