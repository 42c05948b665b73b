"""Celery's pool processes as members of the crew: each one of a node that consumes the queue `work` is a worker.

What a node's processes share is made before the fork: a sign that tells them from those of any other node, and one byte
that says whether the node is closing. Everything else begins in the process itself.
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

from beat import silence
from db import roster
from db.connect import transaction
from workers.celery_settings import WORK
from workers.crew import member, shift
from workers.crew.member import Enlistment
from workers.crew.pulse import Pulse
from workers.runtime import Runtime, runtime
from workers.settings import settings

log = structlog.get_logger()

ENLIST_SECONDS = 10.0  # a process that PostgreSQL does not know by then leaves the task to others


@dataclass(slots=True)
class Node:
    """What the pool processes of one Celery node have in common."""

    name: str
    sign: str
    closing: mmap.mmap  # of one byte, shared by the processes

    @property
    def is_closing(self) -> bool:
        """Whether nothing more is to be taken."""
        return self.closing[0] != 0


@dataclass(slots=True)
class Place:
    """This process's node, and its worker's pulse."""

    node: Node | None = None
    pulse: Pulse | None = None


here = Place()


def connect() -> None:
    """Have Celery's signals open and close this process's place in the crew."""
    signals.celeryd_after_setup.connect(_open_node)
    signals.worker_shutting_down.connect(_close_node)
    signals.worker_process_init.connect(_join)
    signals.worker_process_shutdown.connect(_leave)


def work() -> int:
    """One shift of this process's worker; how many tasks it carried out."""
    if here.pulse is None:
        return 0
    worker_id = here.pulse.worker_id(ENLIST_SECONDS)
    return shift.work(runtime(), worker_id, closing=_is_closing) if worker_id else 0


def _is_closing() -> bool:
    return here.node is None or here.node.is_closing


def _open_node(sender: str, instance: Any, conf: Any, **_: object) -> None:
    if WORK in instance.app.amqp.queues.consume_from:
        here.node = Node(sender, uuid7().hex, mmap.mmap(-1, 1))
        # A soft shutdown sleeps for so long, then kills: short where messages go back, longer where commands run.
        conf.worker_soft_shutdown_timeout = settings().drain_seconds
        # Celery sends `worker_shutting_down` only after that sleep, and nothing before it: hence the method itself.
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
    enlistment = Enlistment(
        name=f"{here.node.name[-70:]}/{os.getpid()}",
        capabilities=(*chosen.settings.capabilities, member.EXECUTE),
        more={"node": here.node.sign, "pid": os.getpid(), "host": here.node.name.partition("@")[2]},
    )
    here.pulse = Pulse(chosen, enlistment, before=lambda: _bury(chosen))
    here.pulse.start()


def _bury(chosen: Runtime) -> None:
    """Relieve those of our node's processes that are no more: one that was killed made room for this one."""
    alive = {child.pid for child in psutil.Process(os.getppid()).children()} - {os.getpid()}
    assert here.node is not None
    with transaction(chosen.database) as connection:
        dead = [row for row in roster.of_node(connection, here.node.sign) if row["pid"] not in alive]
        fired = silence.relieve(connection, dead, "was killed", certain=True) if dead else []
    chosen.hints.lanes(fired)


def _leave(**_: object) -> None:
    if here.pulse is not None:
        here.pulse.stop("is shutting down")
