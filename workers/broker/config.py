"""Celery's settings, chosen for reliability on Redis. Pending work is in PostgreSQL; the broker carries only wake-ups.

Sources: celery 5.7 docs (configuration, redis), kombu 5.7 docs, and failures measured on this stack (docs/celery.md).
"""

from collections.abc import Sequence
from typing import Any

from kombu import Queue

from interlock.beat.schedule import MESSAGES
from interlock.workers.broker.queues import DELIVERIES, EFFECTS, EVIDENCE, GATES, SWEEPS, TRIGGERS, WORK

SHORT_TASKS = ("apply", "schedule", "sweep")
TIME_LIMITS = {"soft_time_limit": 60, "time_limit": 90}  # seconds
# Of a long sweep. Redis delivers its message again meanwhile: the other run ends at once.
LONG_SWEEP = {"queue": EVIDENCE, "soft_time_limit": 900, "time_limit": 930}

COMMON: dict[str, Any] = {
    # A single wire format, which executes nothing when it is read.
    "accept_content": ["json"],
    "task_serializer": "json",
    "result_serializer": "json",
    # PostgreSQL holds results; this also keeps Celery's result consumer off Redis pub/sub.
    "task_ignore_result": True,
    "result_backend": None,
    # Wake-ups are acknowledged after their work; a killed process's is redelivered at once. Repeats are harmless.
    "task_acks_late": True,
    "task_reject_on_worker_lost": True,
    "task_acks_on_failure": True,
    "task_acks_on_timeout": True,  # False would redeliver a wake-up that times out for ever
    # One message at a time for each process: short tasks gain nothing from more, and a dead worker strands fewer.
    "worker_prefetch_multiplier": 1,
    # True kills a task in mid-transaction when the broker connection fails; PostgreSQL fences duplicates anyway.
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    # On SIGTERM, running tasks get this long before their wake-ups are requeued. Less than the supervisor waits.
    "worker_soft_shutdown_timeout": 5,
    "worker_enable_soft_shutdown_on_idle": False,  # True sleeps for the whole time even when idle
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,  # the default gives up after 100
    "broker_pool_acquire_timeout": 10,  # the default waits for ever
    "worker_eta_task_limit": 1000,
    # Limit the effect of a memory leak.
    "worker_max_tasks_per_child": 5000,
    "worker_max_memory_per_child": 400_000,  # KiB
    # Less than the visibility timeout, or a running task would be delivered twice. Set by task name, because the tasks
    # that run commands have no limit, and Celery cannot lift a global limit for one task (0 or None falls back to it).
    "task_annotations": {f"interlock.{name}": TIME_LIMITS for name in SHORT_TASKS},
    # Flower lists what workers report. The sender's events would halve the publishing rate and add nothing.
    "worker_send_task_events": True,
    "task_send_sent_event": False,
    "worker_consumer": "interlock.workers.broker.event_batching:Consumer",  # tasks first, then Flower
    "task_track_started": False,
    "task_create_missing_queues": False,
    "task_queues": [*map(Queue, (TRIGGERS, SWEEPS, EVIDENCE, EFFECTS, DELIVERIES, GATES, WORK))],
    "task_default_queue": TRIGGERS,
    "task_routes": {
        "interlock.apply": {"queue": TRIGGERS},
        "interlock.schedule": {"queue": TRIGGERS},
        "interlock.effect": {"queue": EFFECTS},
        "interlock.deliver": {"queue": DELIVERIES},
        "interlock.gate": {"queue": GATES},
        "interlock.sweep": {"queue": SWEEPS},
        "interlock.work": {"queue": WORK},
    },
    "worker_hijack_root_logger": False,
    "beat_schedule": {
        name: {
            "task": "interlock.sweep",
            "args": tuple(sweep.name for sweep in group),
            "schedule": (seconds := min(sweep.every_seconds for sweep in group)),
            "options": {"expires": max(seconds, 5.0), "shadow": f"sweep: {name}"}
            | (LONG_SWEEP if any(sweep.long for sweep in group) else {}),
        }
        for name, group in MESSAGES.items()
    },
    "beat_max_loop_interval": 1,
    "beat_scheduler": "interlock.workers.broker.beat_scheduler:Scheduler",  # sleeps until the next message is due
}

REDIS_TRANSPORT: dict[str, Any] = {
    # No copy in Redis of what a node has read, which is half of what a message costs: a sweep wakes for the rows in
    # PostgreSQL long before a copy would be delivered again.
    "ack_emulation": False,
    # Without these, publishing into a half-open connection hangs.
    "socket_timeout": 10,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 25,
    "global_keyprefix": "interlock:",
}


def celery_settings(broker_url: str, effect_queues: Sequence[str] = ()) -> dict[str, Any]:
    """The settings for one broker.

    Args:
        broker_url: in kombu's form. Redis gets `REDIS_TRANSPORT`; RabbitMQ needs none of it.
        effect_queues: more queues, for effects of users.
    """
    redis = broker_url.startswith(("redis://", "rediss://", "unix://"))
    return COMMON | {
        "broker_url": broker_url,
        "broker_transport_options": REDIS_TRANSPORT if redis else {},
        "task_queues": [*COMMON["task_queues"], *map(Queue, effect_queues)],
    }
