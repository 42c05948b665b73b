"""Trigger nodes have no pool (`--pool solo`): each is one process, and what a pool would do for it is done here.

A task that hangs is interrupted, and if that does not help, ends its node; a node that has grown ends too. The
supervisor (or Compose) starts another, and the dispatch sweep hints again at what was not applied.
"""

import faulthandler
import os
import signal
from dataclasses import dataclass
from types import FrameType
from typing import Any

import psutil
import structlog
from celery import Task, signals
from celery.concurrency.solo import TaskPool
from celery.exceptions import SoftTimeLimitExceeded

log = structlog.get_logger()

MEASURED_EACH = 100  # tasks


@dataclass(slots=True)
class Solo:
    """This process, where it is a node of its own."""

    most_bytes: int
    tasks: int = 0
    interrupted: bool = False

    def begin(self, task: Task, **_: object) -> None:
        """From here the task has its time, if limited: the soft limit interrupts it, the hard one ends the process."""
        self.interrupted = False
        if task.time_limit is None:
            return
        signal.setitimer(signal.ITIMER_REAL, task.soft_time_limit, task.time_limit - task.soft_time_limit)
        # An endless loop in C keeps Python's own handlers from running: this one is the kernel's, in processor seconds.
        signal.setitimer(signal.ITIMER_PROF, task.time_limit)

    def end(self, **_: object) -> None:
        """The task is over."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.tasks += 1
        if self.tasks % MEASURED_EACH == 0 and (grown := psutil.Process().memory_info().rss) > self.most_bytes:
            log.warning("node_has_grown", bytes=grown, limit=self.most_bytes, consequence="it ends after this task")
            os.kill(os.getpid(), signal.SIGTERM)  # Celery's warm shutdown

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """What the alarm does.

        Raises:
            SoftTimeLimitExceeded: in the task, the first time.
        """
        if self.interrupted:
            faulthandler.dump_traceback()
            os.kill(os.getpid(), signal.SIGKILL)
        self.interrupted = True
        raise SoftTimeLimitExceeded


def connect() -> None:
    """Have Celery's signals tell whether this node is one process, and when its tasks begin and end."""
    signals.celeryd_after_setup.connect(_open)


def _open(instance: Any, conf: Any, **_: object) -> None:
    if not issubclass(instance.pool_cls, TaskPool):
        return
    here = Solo(most_bytes=conf.worker_max_memory_per_child * 1024)
    signal.signal(signal.SIGALRM, here.interrupt)
    faulthandler.register(signal.SIGPROF, chain=True)  # says where it was, then the default: the process ends
    signals.task_prerun.connect(here.begin, weak=False)
    signals.task_postrun.connect(here.end, weak=False)
