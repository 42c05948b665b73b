"""Instances, trigger requests, history, effects: the queries that the engine uses."""
