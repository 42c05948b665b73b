"""Celery's pool processes as workers: each pool process of a node that consumes the queue `work` is a worker.

A process that replaces a killed one gives back what that one held: its task, and the leases of its effects.

A node's processes share what is made before the fork: an id that no other node has, and one byte that says whether the
node is closing. Everything else is made in the process itself.
"""

import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Any
from uuid import UUID

import psutil
import structlog
from celery import signals
from sqlalchemy import RowMapping
from uuid_utils.compat import uuid7

from interlock.beat import heartbeats, sweeps
from interlock.db.connection import transaction
from interlock.db.core import effects
from interlock.db.orchestration import workers
from interlock.db.retry import retried
from interlock.workers.broker.queues import WORK
from interlock.workers.effects import exchange, holder
from interlock.workers.pool import output_files, registration, work_loop
from interlock.workers.pool.registration import Registration, WorkerDescription
from interlock.workers.runtime import Runtime, runtime
from interlock.workers.settings import settings
from interlock.workflows.errors import BadInput

log = structlog.get_logger()

BEATS = 2  # per heartbeat interval, so that one late heartbeat is not yet a missed one
AGAIN_SECONDS = 1.0  # wait after a fault: PostgreSQL may be starting
REGISTER_SECONDS = 10.0  # if registering takes longer, the process leaves the task to others


class HeartbeatSender:
    """Registers a worker and sends its heartbeats, from a thread: they go on while the process works, and end with it.

    A worker declared dead registers again, unless it was drained.
    """

    def __init__(
        self, runtime: Runtime, description: WorkerDescription, before: Callable[[], None] = lambda: None
    ) -> None:
        """Opens nothing. `before` is called ahead of each registration."""
        self._runtime = runtime
        self._description = description
        self._before = before
        self._registered: Registration | None = None
        self._enlisted, self._ended = Event(), Event()
        self._dismissed = False
        self._thread = Thread(target=self._go_on, name="interlock-pulse", daemon=True)

    def start(self) -> None:
        """Start the thread. Call it only after a fork, because a child process would not have the thread."""
        self._thread.start()

    def registered(self, timeout_seconds: float) -> Registration | None:
        """The worker; None if it was not registered in time, or was drained."""
        self._enlisted.wait(timeout_seconds)
        return self._registered

    def stop(self, message: str) -> None:
        """Stop the heartbeats and shut the worker down. `message` is the reason, as it follows `worker NAME …`."""
        self._ended.set()
        self._thread.join(AGAIN_SECONDS)
        if self._registered is not None:
            registration.leave(self._runtime, self._registered, message)

    def _go_on(self) -> None:
        pause = 0.0
        while not self._ended.wait(pause):
            try:
                self.beat()
                self._sweep_output()
                pause = self._runtime.settings.heartbeat_seconds / BEATS
            except Exception as fault:  # whatever it is, the next heartbeat may succeed; others notice a silent worker
                log.warning("heartbeat_failed", worker=self._description.name, error=str(fault))
                pause = min(AGAIN_SECONDS, self._runtime.settings.heartbeat_seconds / BEATS)

    def beat(self) -> None:
        """Send one heartbeat, or register the worker if it is not registered."""
        if self._registered is not None and not registration.heartbeat(self._runtime, [self._registered]):
            self._shut_down(self._registered.worker_id)
        if self._registered is None and not self._dismissed:
            self._before()
            self._registered = registration.register(self._runtime, self._description, replaces=True)
            self._enlisted.set()

    def _sweep_output(self) -> None:
        try:
            output_files.sweep(self._runtime.settings)
            exchange.sweep(self._runtime.settings)
        except (OSError, BadInput) as refused:
            log.warning("output_not_swept", error=str(refused))

    def _shut_down(self, worker_id: UUID) -> None:
        with transaction(self._runtime.database) as connection:
            self._dismissed = workers.get(connection, [worker_id])[worker_id]["draining"]
        log.warning("worker_shut_down", worker=self._description.name, again=not self._dismissed)
        self._registered = None
        if not self._dismissed:
            self._enlisted.clear()


@dataclass(slots=True)
class NodeState:
    """The state that the pool processes of one Celery node share."""

    name: str
    sign: str
    closing: mmap.mmap  # one byte, shared by the processes; not 0: take no more tasks


@dataclass(slots=True)
class Place:
    """This process's node, and the heartbeat of its worker.

    `complete`: one byte, shared by the processes of the node; not 0 once its pool has been whole.
    """

    complete: mmap.mmap | None = None
    node: NodeState | None = None
    heartbeat: HeartbeatSender | None = None


here = Place()


def connect() -> None:
    """Connect to Celery's signals, so that pool processes register as workers and leave."""
    signals.celeryd_after_setup.connect(_open_node)
    signals.worker_ready.connect(_note_complete)
    signals.worker_shutting_down.connect(_close_node)
    signals.worker_process_init.connect(_join)
    signals.worker_process_shutdown.connect(_leave)


def work() -> int:
    """Let this process's worker carry out tasks until none fits; how many they were."""
    if here.heartbeat is None:
        return 0
    registered = here.heartbeat.registered(REGISTER_SECONDS)
    return work_loop.work(runtime(), registered, closing=_is_closing) if registered else 0


def _is_closing() -> bool:
    return here.node is None or here.node.closing[0] != 0


def _open_node(sender: str, instance: Any, conf: Any, **_: object) -> None:
    holder.node.sign = uuid7().hex
    here.complete = mmap.mmap(-1, 1)
    if WORK in instance.app.amqp.queues.consume_from:
        here.node = NodeState(sender, holder.node.sign, mmap.mmap(-1, 1))
        # A soft shutdown waits this long, then kills: short for nodes of wake-ups, longer where commands run.
        conf.worker_soft_shutdown_timeout = settings().drain_seconds
        # Celery sends `worker_shutting_down` only after that wait and no signal before it, hence this wrapper.
        instance.wait_for_soft_shutdown = partial(_closing_first, instance.wait_for_soft_shutdown)


def _note_complete(**_: object) -> None:
    if here.complete is not None:
        here.complete[0] = 1


def _closing_first(wait: Callable[[], None]) -> None:
    _close_node()
    wait()


def _close_node(**_: object) -> None:
    if here.node is not None:
        here.node.closing[0] = 1


def _join(**_: object) -> None:
    if here.complete is not None and here.complete[0]:  # a connection of its own for each of the first would cost 10 MB
        Thread(target=_take_back, args=(runtime(),), name="interlock-take-back", daemon=True).start()
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
    alive = _alive() - {os.getpid()}
    assert here.node is not None
    with transaction(chosen.database) as connection:
        dead = [row for row in workers.of_node(connection, here.node.sign) if row["pid"] not in alive]
        fired = heartbeats.release_tasks(connection, dead, "was killed", certain=True) if dead else []
    chosen.wakeups.partitions(fired)


def _take_back(chosen: Runtime) -> None:
    """Take back the effects that dead processes of our node hold, without waiting for their leases to expire."""

    def taken_back(_: object) -> Sequence[RowMapping]:
        with transaction(chosen.database) as connection:
            held = effects.holders(connection, holder.node.sign)  # first: a process born since is not among them
            alive = _alive()
            gone = [each for each in held if holder.pid(each) not in alive]
            return sweeps.leases(connection, max_attempts=chosen.settings.max_attempts, gone=gone) if gone else ()

    chosen.wakeups.effects(retried(taken_back, patience_seconds=chosen.settings.effect_lease_seconds))


def _alive() -> set[int]:
    """The processes of our node, this one among them."""
    return {child.pid for child in psutil.Process(os.getppid()).children()}


def _leave(**_: object) -> None:
    if here.heartbeat is not None:
        here.heartbeat.stop("is shutting down")
