"""The machines of runs: run, workstream, task, workers, patches, test gates and circuit breakers."""
