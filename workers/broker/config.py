"""Celery's settings, chosen for reliability on Redis. PostgreSQL owns the pending work; these keep the hints flowing.

Sources: celery 5.7 docs (configuration, redis), kombu 5.7 docs, and failures measured on this stack (docs/celery.md).
"""

from typing import Any

from kombu import Queue

from beat.schedule import SCHEDULE

TRIGGERS, SWEEPS, EFFECTS = "triggers", "sweeps", "effects"
WORK = "work"  # tasks of runs: their messages come back with nobody, only PostgreSQL knows who holds what
GATES = "gates"  # effects that may take hours: a notice never waits behind them

SHORT_TASKS = ("apply", "schedule", "sweep")
TIME_LIMITS = {"soft_time_limit": 60, "time_limit": 90}  # seconds

COMMON: dict[str, Any] = {
    # One wire format, and nothing that executes when it is read.
    "accept_content": ["json"],
    "task_serializer": "json",
    "result_serializer": "json",
    # PostgreSQL holds results; this also keeps Celery's result consumer off Redis pub/sub.
    "task_ignore_result": True,
    "result_backend": None,
    # A hint is acknowledged when its work is done; a killed child's comes back at once. Doing it twice is harmless.
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "task_acks_on_failure": True,
    "task_acks_on_timeout": True,  # False would bring a hint that times out back for ever
    # One message at a time for each process: short tasks gain nothing from more, and a dead worker strands fewer.
    "worker_prefetch_multiplier": 1,
    # True kills a task in mid-transaction when the broker blinks; PostgreSQL fences duplicates anyway.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    # On SIGTERM, running tasks get this long; then their hints go back. Shorter than the supervisor's patience.
    "worker_soft_shutdown_timeout": 5,
    "worker_enable_soft_shutdown_on_idle": False,  # True sleeps the whole time with nothing to wait for
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,  # the default gives up after 100
    "broker_pool_acquire_timeout": 10,  # the default waits for ever
    "worker_eta_task_limit": 1000,
    # Bound what a leak can cost.
    "worker_max_tasks_per_child": 5000,
    "worker_max_memory_per_child": 400_000,  # KiB
    # Shorter than the visibility timeout, or a running task would be delivered a second time. By name: what carries out
    # commands has no limit, and a limit for all could not be lifted from one (its 0 or None falls back to it).
    "task_annotations": {f"interlock.{name}": TIME_LIMITS for name in SHORT_TASKS},
    # Flower lists what workers report; the sender's events would halve the rate of publishing and tell it nothing new.
    "worker_send_task_events": True,
    "task_send_sent_event": False,
    "worker_consumer": "workers.consuming:Consumer",  # a task goes to its process before Flower is told of it
    "task_track_started": False,
    "task_create_missing_queues": False,
    "task_queues": [Queue(TRIGGERS), Queue(SWEEPS), Queue(EFFECTS), Queue(GATES), Queue(WORK)],
    "task_default_queue": TRIGGERS,
    "task_routes": {
        "interlock.apply": {"queue": TRIGGERS},
        "interlock.schedule": {"queue": TRIGGERS},
        "interlock.effect": {"queue": EFFECTS},
        "interlock.gate": {"queue": GATES},
        "interlock.sweep": {"queue": SWEEPS},
        "interlock.work": {"queue": WORK},
    },
    "worker_hijack_root_logger": False,
    "beat_schedule": {
        sweep.name: {
            "task": "interlock.sweep",
            "args": (sweep.name,),
            "schedule": sweep.every_seconds,
            "options": {"expires": max(sweep.every_seconds, 5.0), "shadow": f"sweep.{sweep.name}"},
        }
        for sweep in SCHEDULE
    },
    "beat_max_loop_interval": 1,
}

REDIS_TRANSPORT: dict[str, Any] = {
    # After this long without acknowledgement a message is delivered again; longer than any task may run.
    "visibility_timeout": 180,
    # kombu looks for such messages about every 100 s unless told otherwise, whatever the timeout.
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    # Without these, publishing into a half-open connection hangs.
    "socket_timeout": 10,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 25,
    "global_keyprefix": "interlock:",
}


def celery_settings(broker_url: str) -> dict[str, Any]:
    """The settings for one broker.

    Args:
        broker_url: as kombu reads it; Redis gets its transport's settings, RabbitMQ has its own acknowledgements.
    """
    redis = broker_url.startswith(("redis://", "rediss://", "unix://"))
    return COMMON | {"broker_url": broker_url, "broker_transport_options": REDIS_TRANSPORT if redis else {}}
