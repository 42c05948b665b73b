"""Queries of runs, workstreams, tasks, claims, patches, breakers and jobs."""
