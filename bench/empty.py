"""Celery's empty task: `pass` in a plain app with defaults, which is the minimum cost of any work through Celery.

A round is over when the broker has no message, neither queued nor unacknowledged. By default Celery acknowledges when a
pool process begins a task, so the last two tasks may still be running: less than a millisecond, in Celery's favour.
Nothing is added to the task or worker for counting; the worker's own counter confirms the number.
"""

import mmap
import os
import struct
import time
from functools import cache
from pathlib import Path

from celery import Celery, signals
from redis import Redis

from bench.nodes import BROKER, SLOTS

POLL_SECONDS = 0.003
PATIENCE_SECONDS = 60.0
SLOT = struct.Struct("q")

app = Celery("empty", broker=os.environ.get(BROKER, "redis://"))


@app.task(ignore_result=True)
def empty() -> None:
    """Does nothing."""
    pass


@app.task(ignore_result=True)
def stamp(slot: int) -> None:
    """Only writes the instant it runs into shared memory."""
    SLOT.pack_into(slots(), slot * SLOT.size, time.monotonic_ns())


@cache
def slots() -> mmap.mmap:
    """The shared memory that this process's environment names."""
    return open_slots(Path(os.environ[SLOTS]))


def open_slots(path: Path) -> mmap.mmap:
    """Map the shared memory of `stamp`: a file of 64-bit instants."""
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


@signals.worker_ready.connect
def _say_ready(**_: object) -> None:
    Path(os.environ["INTERLOCK_READY_FILE"]).touch()


class Empty:
    """The empty task as one side of a comparison; this process is the producer."""

    def __init__(self, broker_url: str) -> None:
        app.conf.broker_url = broker_url
        self.broker = Redis.from_url(broker_url)

    def single(self, messages: int) -> float:
        """Send empty tasks one by one; returns the seconds from the first `delay` to the last completion."""
        delay = empty.delay
        began = time.perf_counter()
        for _ in range(messages):
            delay()
        return drained(self.broker) - began

    def completed(self) -> int:
        """The number of tasks that the worker reports to have run."""
        stats = app.control.inspect(timeout=5).stats() or {}
        return sum(sum(node["total"].values()) for node in stats.values())

    def close(self) -> None:
        """Close the connections."""
        self.broker.close()
        app.close()
        vars(app).pop("amqp", None)  # otherwise the next benchmark would reuse its connections to this broker


def drained(broker: Redis) -> float:
    """Wait until the broker has no more messages of the default queue; returns that instant."""
    until = time.perf_counter() + PATIENCE_SECONDS
    while broker.llen("celery") or broker.hlen("unacked"):
        if time.perf_counter() > until:
            raise RuntimeError(f"messages still in the broker after {PATIENCE_SECONDS:g} s")
        time.sleep(POLL_SECONDS)
    return time.perf_counter()
