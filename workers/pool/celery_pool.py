"""Celery's pool processes as workers: each pool process of a node that consumes the queue `work` is a worker.

A node's processes share what is made before the fork: an id that no other node has, and one byte that says whether the
node is closing. Everything else is made in the process itself.
"""

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil
import structlog
from celery import signals
from uuid_utils.compat import uuid7

from interlock.beat import heartbeats
from interlock.db.connection import transaction
from interlock.db.orchestration import workers
from interlock.workers.broker.config import WORK
from interlock.workers.pool import registration, work_loop
from interlock.workers.pool.heartbeat import HeartbeatSender
from interlock.workers.pool.registration import WorkerDescription
from interlock.workers.runtime import Runtime, runtime
from interlock.workers.settings import settings

log = structlog.get_logger()

REGISTER_SECONDS = 10.0  # if registering takes longer, the process leaves the task to others


@dataclass(slots=True)
class Node:
    """The state that the pool processes of one Celery node share."""

    name: str
    sign: str
    closing: mmap.mmap  # one byte, shared by the processes; not 0: take no more tasks


@dataclass(slots=True)
class Place:
    """This process's node, and the heartbeat of its worker."""

    node: Node | None = None
    heartbeat: HeartbeatSender | None = None


here = Place()


def connect() -> None:
    """Connect to Celery's signals, so that pool processes register as workers and leave."""
    signals.celeryd_after_setup.connect(_open_node)
    signals.worker_shutting_down.connect(_close_node)
    signals.worker_process_init.connect(_join)
    signals.worker_process_shutdown.connect(_leave)


def work() -> int:
    """Let this process's worker carry out tasks until none fits; how many they were."""
    if here.heartbeat is None:
        return 0
    worker_id = here.heartbeat.worker_id(REGISTER_SECONDS)
    return work_loop.work(runtime(), worker_id, closing=_is_closing) if worker_id else 0


def _is_closing() -> bool:
    return here.node is None or here.node.closing[0] != 0


def _open_node(sender: str, instance: Any, conf: Any, **_: object) -> None:
    if WORK in instance.app.amqp.queues.consume_from:
        here.node = Node(sender, uuid7().hex, mmap.mmap(-1, 1))
        # A soft shutdown waits this long, then kills: short for nodes of wake-ups, longer where commands run.
        conf.worker_soft_shutdown_timeout = settings().drain_seconds
        # Celery sends `worker_shutting_down` only after that wait and no signal before it, hence this wrapper.
        instance.wait_for_soft_shutdown = partial(_closing_first, instance.wait_for_soft_shutdown)


def _closing_first(wait: Callable[[], None]) -> None:
    _close_node()
    wait()


def _close_node(**_: object) -> None:
    if here.node is not None:
        here.node.closing[0] = 1


def _join(**_: object) -> None:
    if here.node is None:
        return
    chosen = runtime()
    description = WorkerDescription(
        name=f"{here.node.name[-70:]}/{os.getpid()}",
        capabilities=(*chosen.settings.capabilities, registration.EXECUTE),
        more={"node": here.node.sign, "pid": os.getpid(), "host": here.node.name.partition("@")[2]},
    )
    here.heartbeat = HeartbeatSender(chosen, description, before=lambda: _bury(chosen))
    here.heartbeat.start()


def _bury(chosen: Runtime) -> None:
    """Retire the workers of our node's dead processes: this process replaces one that was killed."""
    alive = {child.pid for child in psutil.Process(os.getppid()).children()} - {os.getpid()}
    assert here.node is not None
    with transaction(chosen.database) as connection:
        dead = [row for row in workers.of_node(connection, here.node.sign) if row["pid"] not in alive]
        fired = heartbeats.release_tasks(connection, dead, "was killed", certain=True) if dead else []
    chosen.wakeups.partitions(fired)


def _leave(**_: object) -> None:
    if here.heartbeat is not None:
        here.heartbeat.stop("is shutting down")
