"""Celery worker nodes as subprocesses: Interlock's, as `interlock up` starts them, and plain ones to compare with."""

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
from interlock.supervisor.processes import specs
from interlock.supervisor.processes.process import Child, tail
from interlock.supervisor.processes.spec import Part
from interlock.supervisor.servers.endpoints import Servers

ROOT = Path(__file__).parents[1]
READY_SECONDS = 30.0
PROCESSES = 2  # the same number as Interlock's default trigger nodes, which have one process each
BROKER, DATABASE, SLOTS = "BENCH_BROKER_URL", "BENCH_DATABASE_URL", "BENCH_SLOTS"


@contextmanager
def interlock_nodes(
    stage: Stage, servers: Servers, *, notes: Path | None = None, beat: bool = False
) -> Iterator[list[Child]]:
    """The trigger nodes of `interlock up`: `… worker -Q triggers,sweeps --pool solo -E`.

    `notes` is shared memory into which they write the instant of their last commit (`bench.noting`); `beat`:
    whether beat runs, too.
    """
    parts = specs.celery_parts(stage.home, stage.settings(servers), servers)
    with ExitStack() as stack:
        nodes = []
        for node in parts:
            if node.name.startswith("triggers") or (beat and node.name == "beat"):
                nodes.append(stack.enter_context(_running(stage, _noting(node, notes) if notes else node)))
        yield nodes


def _noting(node: Part, notes: Path) -> Part:
    command = ["bench.noting" if word == "interlock.workers.node" else word for word in node.command]
    more = {SLOTS: str(notes), "PYTHONPATH": str(ROOT)}  # where `bench` is
    return replace(node, command=tuple(command), environment={**node.environment, **more}, directory=ROOT)


@contextmanager
def effects_node(stage: Stage, servers: Servers) -> Iterator[Child]:
    """The node of `interlock up` that runs effects; it also knows the one of `bench.nothing`."""
    settings = stage.settings(servers).model_copy(update={"definitions": ("bench.nothing",)})
    (node,) = (each for each in specs.celery_parts(stage.home, settings, servers) if each.name == "effects")
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    with _running(stage, replace(node, environment={**node.environment, "PYTHONPATH": path}, directory=ROOT)) as child:
        yield child


@contextmanager
def plain_node(stage: Stage, app: str, servers: Servers, slots: Path | None = None) -> Iterator[Child]:
    """A node of a plain Celery app, with the prefork pool and all other defaults."""
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
    # Executed, not a fork of this process, which has connections and has imported the plain app without its broker. No
    # soft shutdown: it has nothing left to do when we stop it, and its data are thrown away.
    part = replace(part, command=("/usr/bin/env", *part.command), stop_signal=signal.SIGKILL)
    child = Child(part, stage.home.log(f"bench-{part.name}"), lambda: None)
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
    """Total resident memory of nodes with one process each."""
    return sum(psutil.Process(node.report().pid).memory_info().rss for node in nodes)
