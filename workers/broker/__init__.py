"""Celery's application and its broker: queues, wake-ups, time limits."""
