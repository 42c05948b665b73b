"""Time and memory limits for trigger nodes, which have no pool (`--pool solo`) to enforce them.

A task that hangs is interrupted; if it does not stop, its node is killed. A node whose memory has grown too much ends.
The supervisor (or Compose) then starts another, and the dispatch sweep sends new wake-ups for unapplied triggers.
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

MEASURED_EACH = 100  # tasks between two measurements of memory


@dataclass(slots=True)
class Solo:
    """The limits of this process, when it is a node without a pool."""

    most_bytes: int
    tasks: int = 0
    interrupted: bool = False

    def begin(self, task: Task, **_: object) -> None:
        """Start a task's time limits, if it has any: the soft limit interrupts it, the hard limit ends the process."""
        self.interrupted = False
        if task.time_limit is None:
            return
        signal.setitimer(signal.ITIMER_REAL, task.soft_time_limit, task.time_limit - task.soft_time_limit)
        # An endless loop in C blocks Python's handlers; this signal's default action is the kernel's. CPU seconds.
        signal.setitimer(signal.ITIMER_PROF, task.time_limit)

    def end(self, **_: object) -> None:
        """End the task's time limits. Every 100 tasks, end the node if its memory exceeds the limit."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.tasks += 1
        if self.tasks % MEASURED_EACH == 0 and (grown := psutil.Process().memory_info().rss) > self.most_bytes:
            log.warning("node_has_grown", bytes=grown, limit=self.most_bytes, consequence="it ends after this task")
            os.kill(os.getpid(), signal.SIGTERM)  # Celery's warm shutdown

    def interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """The handler of SIGALRM. The second time within a task, it kills the process.

        Raises:
            SoftTimeLimitExceeded: in the task, the first time.
        """
        if self.interrupted:
            faulthandler.dump_traceback()
            os.kill(os.getpid(), signal.SIGKILL)
        self.interrupted = True
        raise SoftTimeLimitExceeded


def connect() -> None:
    """Connect to Celery's signals: at node start-up, and in a node without a pool at the start and end of each task."""
    signals.celeryd_after_setup.connect(_open)


def _open(instance: Any, conf: Any, **_: object) -> None:
    if not issubclass(instance.pool_cls, TaskPool):
        return
    here = Solo(most_bytes=conf.worker_max_memory_per_child * 1024)
    signal.signal(signal.SIGALRM, here.interrupt)
    faulthandler.register(signal.SIGPROF, chain=True)  # prints the traceback, then the default action ends the process
    signals.task_prerun.connect(here.begin, weak=False)
    signals.task_postrun.connect(here.end, weak=False)
