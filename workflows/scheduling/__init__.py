"""Derives the next trigger of tasks, gates, patches, workstreams and runs from the state of the others."""
