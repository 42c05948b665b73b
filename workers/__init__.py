"""The Celery side: thin tasks, the engine that alone changes state, effects, the relay and the Python client."""
