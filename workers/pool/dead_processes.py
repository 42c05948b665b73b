"""Gives back at once what dead processes held: their workers' tasks, and the leases of their effects.

A process of our node is dead if it is no child of the node's; another one if its pid is gone, where it would exist. The
processes of a node share when one of them looked last, so that only one looks for all.
"""

import mmap
import os
from collections.abc import Sequence
from struct import pack_into, unpack_from
from time import monotonic
from uuid import UUID

import psutil
from sqlalchemy import Connection, RowMapping

from interlock.beat import heartbeats, sweeps
from interlock.db.connection import transaction
from interlock.db.core import effects
from interlock.db.orchestration import workers
from interlock.workers.effects import holder
from interlock.workers.runtime import Runtime
from interlock.workers.system.pid_namespace import pid_namespace

_LOOKED, _COMPLETE = 0, 8  # where they are in the memory that a node's processes share


class Lookout:
    """When the processes of one Celery node looked last, and whether its pool has been whole."""

    def __init__(self) -> None:
        """Call it before the fork: the memory is then shared by all processes of the node."""
        self._shared = mmap.mmap(-1, 16)

    def note_complete(self) -> None:
        """The pool is whole: a process that joins from now on replaces a dead one."""
        self._shared[_COMPLETE] = 1

    @property
    def complete(self) -> bool:
        """Whether the pool has been whole."""
        return self._shared[_COMPLETE] != 0

    def forget(self) -> None:
        """Let the next process look, however lately another one did."""
        pack_into("d", self._shared, _LOOKED, 0.0)

    def take_turn(self, every_seconds: float) -> bool:
        """Whether to look now: no process of the node has done so for that long. It then counts as done."""
        now = monotonic()  # of the machine, so the same for all its processes
        (looked,) = unpack_from("d", self._shared, _LOOKED)
        if looked and now - looked < every_seconds:
            return False
        pack_into("d", self._shared, _LOOKED, now)
        return True

    def look(self, runtime: Runtime, own: UUID | None = None, *, every_seconds: float) -> bool:
        """Look for dead processes, and give back what they held, if it is this process's turn; whether it was.

        Args:
            runtime: this process's connections.
            own: the id of this process's worker, if it is one.
            every_seconds: how long one look of the node's processes is enough.
        """
        if not self.take_turn(every_seconds):
            return False
        try:
            _look(runtime, own)
        except Exception:
            self.forget()
            raise
        return True


def _look(runtime: Runtime, own: UUID | None) -> None:
    node, namespace = holder.node.sign, pid_namespace()
    with transaction(runtime.database) as connection:
        found = workers.of_node(connection, node, namespace)
        leases = effects.holders(connection, node, namespace)
        children = _children()  # last: a process born since is in none of the two
        others = [row for row in found if row["worker_id"] != own]
        dead = [row for row in others if _is_dead(row["pid"], children - {os.getpid()} if row["ours"] else None)]
        gone = [each for each in leases if _is_dead(holder.pid(each), children if holder.is_ours(each) else None)]
        fired = heartbeats.release_tasks(connection, dead, "was killed", certain=True) if dead else ()
        pending = _give_back(runtime, connection, gone) if gone else ()
    runtime.wakeups.partitions(fired)
    runtime.wakeups.effects(pending)


def _give_back(runtime: Runtime, connection: Connection, gone: list[str]) -> Sequence[RowMapping]:
    most, own = runtime.settings.max_attempts, runtime.own_attempts
    return sweeps.leases(connection, max_attempts=most, own_attempts=own, gone=gone)


def _is_dead(pid: int, alive: set[int] | None) -> bool:
    """Whether a process is gone. `alive`: the processes of its node; None: another node's."""
    return not psutil.pid_exists(pid) if alive is None else pid not in alive


def _children() -> set[int]:
    """The processes of our node, this one among them."""
    return {child.pid for child in psutil.Process(os.getppid()).children()}
