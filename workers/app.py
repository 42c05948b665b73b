"""The Celery app, composed explicitly: `make_app(settings)`. Importing this module opens nothing."""

import os
from pathlib import Path
from typing import Any

from celery import Celery, signals

from workers import logs, redis_guard
from workers.celery_settings import celery_settings
from workers.settings import Settings


def make_app(settings: Settings) -> Celery:
    """A Celery app for these settings; as it is, a producer. `workers.main` adds the tasks.

    Raises:
        NotRunning: no broker is known.
    """
    redis_guard.install()
    app = Celery("interlock", set_as_current=False)
    app.conf.update(celery_settings(settings.resolved_broker_url()))
    return app


@signals.setup_logging.connect
def _configure_logs(**_: Any) -> None:
    logs.configure()


@signals.worker_ready.connect
@signals.beat_init.connect
def _say_ready(**_: Any) -> None:
    if path := os.environ.get("INTERLOCK_READY_FILE"):
        Path(path).touch()
