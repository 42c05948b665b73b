"""Celery's pool processes as workers: each pool process of a node that consumes the queue `work` is a worker.

A node's processes share what is made before the fork: an id that no other node has, one byte that says whether the
node is closing, and when one of them last looked for dead processes. Everything else is made in the process itself.
"""

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Any
from uuid import UUID

import structlog
from celery import signals
from uuid_utils.compat import uuid7

from interlock.db.connection import transaction
from interlock.db.orchestration import workers
from interlock.db.retry import retried
from interlock.workers.broker.queues import WORK
from interlock.workers.effects import exchange, holder
from interlock.workers.pool import output_files, registration, work_loop
from interlock.workers.pool.dead_processes import Lookout
from interlock.workers.pool.registration import Registration, WorkerDescription
from interlock.workers.runtime import Runtime, runtime
from interlock.workers.settings import settings
from interlock.workers.system.pid_namespace import pid_namespace
from interlock.workflows.errors import BadInput

log = structlog.get_logger()

BEATS = 2  # per heartbeat interval, so that one late heartbeat is not yet a missed one
SOON_SECONDS = 5.0  # to the first heartbeat: the processes of a node that was killed may have outlived it for a moment
AGAIN_SECONDS = 1.0  # wait after a fault: PostgreSQL may be starting
REGISTER_SECONDS = 10.0  # if registering takes longer, the process leaves the task to others


class HeartbeatSender:
    """Registers a worker and sends its heartbeats, from a thread: they go on while the process works, and end with it.

    A worker declared dead registers again, unless it was drained.
    """

    def __init__(
        self,
        runtime: Runtime,
        description: WorkerDescription,
        meanwhile: Callable[[UUID | None], object] = lambda _: None,
    ) -> None:
        """Opens nothing. `meanwhile` is called after each heartbeat with the worker's id, or None before it has one."""
        self._runtime = runtime
        self._description = description
        self._meanwhile = meanwhile
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
                usual = self._runtime.settings.heartbeat_seconds / BEATS
                pause = usual if pause else min(SOON_SECONDS, usual)
            except Exception as fault:  # whatever it is, the next heartbeat may succeed; others notice a silent worker
                log.warning("heartbeat_failed", worker=self._description.name, error=str(fault))
                pause = min(AGAIN_SECONDS, self._runtime.settings.heartbeat_seconds / BEATS)

    def beat(self) -> None:
        """Send one heartbeat, or register the worker if it is not registered."""
        if self._registered is not None and not registration.heartbeat(self._runtime, [self._registered]):
            self._shut_down(self._registered.worker_id)
        self._meanwhile(self._registered.worker_id if self._registered else None)
        if self._registered is None and not self._dismissed:
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
    """This process's node, the heartbeat of its worker, and who of the node looks for dead processes."""

    lookout: Lookout | None = None
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
    here.lookout = Lookout()
    if WORK in instance.app.amqp.queues.consume_from:
        here.node = NodeState(sender, holder.node.sign, mmap.mmap(-1, 1))
        # A soft shutdown waits this long, then kills: short for nodes of wake-ups, longer where commands run.
        conf.worker_soft_shutdown_timeout = settings().drain_seconds
        # Celery sends `worker_shutting_down` only after that wait and no signal before it, hence this wrapper.
        instance.wait_for_soft_shutdown = partial(_closing_first, instance.wait_for_soft_shutdown)


def _note_complete(**_: object) -> None:
    if here.lookout is not None:
        here.lookout.note_complete()


def _closing_first(wait: Callable[[], None]) -> None:
    _close_node()
    wait()


def _close_node(**_: object) -> None:
    if here.node is not None:
        here.node.closing[0] = 1


def _join(**_: object) -> None:
    chosen, lookout = runtime(), here.lookout
    if lookout is None:  # the node has no pool, and says so before it is set up: nobody replaces its process alone
        return
    if lookout.complete:
        lookout.forget()
    if here.node is None:
        wait = 0.0 if lookout.complete else SOON_SECONDS
        Thread(target=_look_once, args=(chosen, lookout, wait), name="interlock-look", daemon=True).start()
        return
    description = WorkerDescription(
        name=f"{here.node.name[-70:]}/{os.getpid()}",
        capabilities=(*chosen.settings.capabilities, registration.EXECUTE),
        more={
            "node": here.node.sign,
            "pid": os.getpid(),
            "pid_namespace": pid_namespace(),
            "host": here.node.name.partition("@")[2],
        },
    )
    often = min(SOON_SECONDS, chosen.settings.heartbeat_seconds / BEATS)
    look = partial(lookout.look, chosen, every_seconds=often)
    here.heartbeat = HeartbeatSender(chosen, description, meanwhile=look)
    here.heartbeat.start()


def _look_once(chosen: Runtime, lookout: Lookout, wait_seconds: float) -> None:
    """Look for what dead processes left. Afterwards the workers' heartbeats do."""
    chosen.pause(wait_seconds)
    patience = chosen.settings.effect_lease_seconds  # after that, the leases have expired
    if retried(lambda _: lookout.look(chosen, every_seconds=SOON_SECONDS), patience_seconds=patience):
        chosen.database.dispose()  # an idle connection would cost 10 MB until the first effect


def _leave(**_: object) -> None:
    if here.heartbeat is not None:
        here.heartbeat.stop("is shutting down")
