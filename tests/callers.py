"""Processes that call one tool through its breaker at the same time."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from threading import Event
from typing import Any

import psycopg

from interlock.workers.circuit_breakers import BreakerOpen, calling
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings

FORKS = multiprocessing.get_context("forkserver")  # never a fork of pytest itself, with its connections
WAIT_SECONDS = 60.0
TOOL = "pytest"


@dataclass(frozen=True)
class Crowd:
    """What the processes of a crowd share: settings, project, a barrier for the start, and a queue for results."""

    settings: Settings
    project: str
    ready: Barrier
    said: Any  # a multiprocessing Queue

    def wait(self) -> None:
        self.ready.wait(WAIT_SECONDS)

    def hear(self, count: int) -> list[Any]:
        """Receive `count` results from the processes; if one is missing for a minute, the test fails."""
        return [self.said.get(timeout=WAIT_SECONDS) for _ in range(count)]


@contextmanager
def crowd(settings: Settings, project: str, size: int, work: Callable[..., None], *given: object) -> Iterator[Crowd]:
    """Run `work(crowd, number, *given)` in `size` processes; those still running at the end are killed."""
    told = Crowd(settings, project, FORKS.Barrier(size), FORKS.Queue())
    processes = [FORKS.Process(target=work, args=(told, number, *given)) for number in range(size)]
    for process in processes:
        process.start()
    try:
        yield told
        for process in processes:
            process.join(WAIT_SECONDS)
            assert process.exitcode in (0, -signal.SIGKILL)  # it ended by itself, or was killed on purpose
    finally:
        for process in processes:
            process.kill()
            process.join()
            process.close()


def fail_often(told: Crowd, _: int, calls: int) -> None:
    """Call a tool that always fails `calls` times; report how many calls the breaker let through."""
    runtime = Runtime(told.settings)
    told.wait()
    passed = 0
    for _ in range(calls):
        try:
            with calling(runtime, told.project, TOOL) as call:
                passed += 1
                call.failed("it always does")
        except BreakerOpen:
            pass
    told.said.put(passed)
    runtime.close()


def try_at_once(told: Crowd, number: int, rounds: int) -> None:
    """In each round, request the trial at the same time as the others, and hold it until all have their answer."""
    runtime = Runtime(told.settings)
    for round_ in range(rounds):
        if number == 0:
            let_the_cooldown_pass(told.settings)
        told.wait()
        try:
            with calling(runtime, told.project, TOOL) as call:
                told.said.put((round_, "passed"))
                told.wait()
                call.failed("not yet")
        except BreakerOpen:
            told.said.put((round_, "refused"))
            told.wait()
        told.wait()
    runtime.close()


def hold_the_trial(told: Crowd, _: int, lease_seconds: float) -> None:
    """Take the trial, report the pid, and never end."""
    with calling(Runtime(told.settings), told.project, TOOL, lease_seconds=lease_seconds):
        told.said.put(os.getpid())
        while True:
            Event().wait(WAIT_SECONDS)  # until it is killed


def kill(process_id: int) -> None:
    """Send SIGKILL, so that the process cannot clean up."""
    os.kill(process_id, signal.SIGKILL)


def let_the_cooldown_pass(settings: Settings) -> None:
    """Move the opening of every open breaker into the past, so that its cooldown is over."""
    with psycopg.connect(settings.database_url or "", autocommit=True) as dba:
        dba.execute("UPDATE circuit_breakers SET opened_at = opened_at - interval '1 day' WHERE state = 'OPEN'")
        dba.execute(
            "UPDATE trigger_requests SET not_before = not_before - interval '1 day'"
            " WHERE status = 'scheduled' AND trigger = 'cooldown_expires'"
        )
