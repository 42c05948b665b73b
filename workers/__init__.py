"""The Celery side: thin tasks, the engine (the only code that changes state), effects, the relay, the Python client."""
