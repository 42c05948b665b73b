"""What `celery -A workers.main` loads: the app of this process's settings, with its tasks."""

from celery import signals

from workers import solo, tasks, tracing
from workers.app import make_app
from workers.crew import pool
from workers.runtime import runtime
from workers.settings import settings

app = make_app(settings())
tasks.register(app)


@signals.worker_process_init.connect
def _start_clean(**_: object) -> None:
    runtime.cache_clear()
    tracing.forget()


@signals.worker_process_shutdown.connect
def _send_spans(**_: object) -> None:
    tracing.end()


solo.connect()
pool.connect()  # after `_start_clean`: what a process inherits is dropped before its worker begins
