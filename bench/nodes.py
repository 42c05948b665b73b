"""Celery worker nodes as subprocesses: Interlock's own as `interlock up` starts it, and plain ones to compare with."""

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from bench.stage import Stage
from supervisor import table
from supervisor.child import Child, tail
from supervisor.parts import Part
from supervisor.servers import Servers

ROOT = Path(__file__).parents[1]
READY_SECONDS = 30.0
PROCESSES = 2  # as many as Interlock has nodes of one process by default
BROKER, DATABASE, SLOTS = "BENCH_BROKER_URL", "BENCH_DATABASE_URL", "BENCH_SLOTS"


@contextmanager
def interlock_nodes(stage: Stage, servers: Servers, *, notes: Path | None = None) -> Iterator[list[Child]]:
    """The trigger nodes of `interlock up`, each `celery -A workers.main:app worker -Q triggers,sweeps --pool solo -E`.

    With `notes`, shared memory in which they note when they last committed (`bench.noting`).
    """
    parts = table.celery_parts(stage.home, stage.settings(servers), servers)
    with ExitStack() as stack:
        nodes = []
        for node in parts:
            if node.name.startswith("triggers"):
                nodes.append(stack.enter_context(_running(stage, _noting(node, notes) if notes else node)))
        yield nodes


def _noting(node: Part, notes: Path) -> Part:
    command = ["bench.noting:app" if word == "workers.main:app" else word for word in node.command]
    return replace(node, command=tuple(command), environment={**node.environment, SLOTS: str(notes)}, directory=ROOT)


@contextmanager
def plain_node(stage: Stage, app: str, servers: Servers, slots: Path | None = None) -> Iterator[Child]:
    """A node of a plain Celery app in the default prefork pool, everything else by default as well."""
    ready = stage.home.ready_file("plain")
    part = Part(
        name="plain",
        command=(sys.executable, "-m", "celery", "-A", app, "worker", "-c", str(PROCESSES)),
        environment={
            **os.environ,
            BROKER: servers.broker_url,
            DATABASE: servers.database_url,
            SLOTS: str(slots or ""),
            "INTERLOCK_READY_FILE": str(ready),
        },
        waits_for=lambda _pid: None if ready.exists() else "has not reported ready yet",
        before=lambda: ready.unlink(missing_ok=True),
        directory=ROOT,
    )
    with _running(stage, part) as child:
        yield child


@contextmanager
def _running(stage: Stage, part: Part) -> Iterator[Child]:
    # It has nothing left to do when we stop it, and its data is thrown away: no soft shutdown.
    child = Child(replace(part, stop_signal=signal.SIGKILL), stage.home.log(f"bench-{part.name}"), lambda: None)
    child.start()
    try:
        until = time.monotonic() + READY_SECONDS
        while child.state != "ready":
            child.tend()
            if child.failures or time.monotonic() > until:
                raise RuntimeError(f"{part.name} did not come up ({child.detail}):\n{tail(child.log, 30)}")
            time.sleep(0.05)
        yield child
    finally:
        child.ask_to_stop()
        child.finish_stop(hurried=True)


def resident_bytes(nodes: Iterable[Child]) -> int:
    """Resident memory of nodes of one process each."""
    return sum(psutil.Process(node.report().pid).memory_info().rss for node in nodes)
