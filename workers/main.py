"""The module that `celery -A interlock.workers.main` loads: the app for this process's settings, with its tasks."""

import os
from functools import partial
from typing import Any

from celery import signals

from interlock.workers import tasks
from interlock.workers.broker import kombu_patch, startup_patch, time_limits
from interlock.workers.broker.app import make_app
from interlock.workers.broker.queues import WORK
from interlock.workers.isolation import in_force
from interlock.workers.pool import celery_pool
from interlock.workers.runtime import runtime
from interlock.workers.settings import settings
from interlock.workers.system import process_privacy
from interlock.workers.system.garbage import collect_seldom
from interlock.workers.system.readiness import announce_ready
from interlock.workers.telemetry import logs, tracing

collect_seldom()
os.umask(0o077)  # a node's journal, archives and exports are readable by its user only, whoever started it
process_privacy.hide(settings())
kombu_patch.install()
startup_patch.install()
app = make_app(settings())
tasks.register(app)
app.finalize()  # once, in what the nodes are forked from
RUN_COMMANDS = {WORK, "gates", "effects"}  # queues


@signals.setup_logging.connect
def _configure_logs(**_: object) -> None:
    logs.configure()


@signals.beat_init.connect
def _report_ready(**_: object) -> None:
    announce_ready()


@signals.worker_ready.connect
def _report_isolation(sender: Any, **_: object) -> None:
    """As for beat; a node that runs commands also writes their isolation into its ready file."""
    runs_commands = RUN_COMMANDS & set(sender.app.amqp.queues.consume_from)
    announce_ready(partial(in_force.report, settings()) if runs_commands else str)


@signals.worker_process_init.connect
def _start_clean(**_: object) -> None:
    runtime.cache_clear()
    tracing.forget()


@signals.worker_process_shutdown.connect
def _send_spans(**_: object) -> None:
    tracing.end()


time_limits.connect()
celery_pool.connect()  # after `_start_clean`, which drops what a process inherits before its worker begins
