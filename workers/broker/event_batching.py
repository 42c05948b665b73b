"""Celery's consumer with delayed Flower events: a received task goes to its process before its event is sent.

Plain Celery first publishes the event "received", which delays each task by 0.3 to 0.4 ms.
"""

from time import monotonic
from typing import Any

from celery.worker.consumer import Consumer as CeleryConsumer

EVENTS_SECONDS = 0.05  # events of this long are sent together, or sooner when Celery's limit of 24 is reached


class Consumer(CeleryConsumer):  # type: ignore[misc]  # celery has no types
    """Publishes task events in batches."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._due = 0.0

    def on_send_event_buffered(self) -> None:
        """Schedule the sending of buffered events."""
        now = monotonic()
        if self.hub and now >= self._due:  # a time, not a flag: a lost connection clears the hub's timers
            self._due = now + EVENTS_SECONDS
            self.hub.call_later(EVENTS_SECONDS, self._flush_events)
