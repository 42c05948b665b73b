"""The Celery app, composed explicitly: `make_app(settings)`. Importing this module opens and changes nothing."""

from celery import Celery

from interlock.workers.broker.config import celery_settings
from interlock.workers.settings import Settings


def make_app(settings: Settings) -> Celery:
    """A Celery app for these settings. It can only send messages; `workers.main` adds the tasks.

    Raises:
        NotRunning: the settings name no broker, and `interlock up` has recorded none.
    """
    app = Celery("interlock", set_as_current=False)
    app.conf.update(celery_settings(settings.resolved_broker_url(), settings.effect_queues))
    return app
