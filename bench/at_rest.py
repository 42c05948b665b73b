"""`rest`: an idle installation, its start by `interlock up`, and a trigger fired from the shell."""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from uuid import uuid4

import psutil

from bench.effort import Effort
from bench.finding import Bar, Finding
from bench.progress import Rounds
from bench.stage import Stage
from interlock.supervisor import orphans
from interlock.supervisor.environment import PYTHON, environment
from interlock.supervisor.home import Home, home_of
from interlock.supervisor.processes.loop import data_places
from interlock.workers.settings import Settings

SETTLING_SECONDS = 10.0
FIRED = 5
MOVES = ("block", "unblock")


def measure(_stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Each round starts the installation anew, with an existing database."""
    with _home() as settings:
        _interlock(settings, "up", "--detach")  # makes the database
        _interlock(settings, "down")
        figures = [_round(settings, effort.rest_seconds) for _ in rounds]
    ready, cpu, memory, fired = zip(*figures, strict=True)
    idle = f"over {effort.rest_seconds:g} s, {SETTLING_SECONDS:g} s after it was ready"
    return [
        Finding("rest.ready", "`interlock up --detach` until all parts are ready", "s", ready, bar=Bar("≤", 6.0)),
        Finding("rest.cpu", "an installation at rest, of one core", "%", cpu, bar=Bar("≤", 3.0), note=idle),
        Finding("rest.memory", "its memory (PSS, all processes)", "MB", memory, bar=Bar("≤", 500.0)),
        Finding("rest.fire", "`interlock fire --wait` from the shell", "s", fired, bar=Bar("≤", 0.4)),
    ]


def _round(settings: Settings, seconds: float) -> tuple[float, float, float, float]:
    began = time.perf_counter()
    _interlock(settings, "up", "--detach")
    ready = time.perf_counter() - began
    try:
        time.sleep(SETTLING_SECONDS)
        before = _processor_seconds(home_of(settings))
        time.sleep(seconds)
        used = _processor_seconds(home_of(settings)) - before
        memory = sum(each.memory_full_info().pss for each in _processes(home_of(settings))) / 1e6
        return ready, used / seconds * 100, memory, _fired(settings)
    finally:
        _interlock(settings, "down")


def _fired(settings: Settings) -> float:
    """The median seconds of FIRED triggers, each fired by its own process."""
    story = _interlock(settings, "create", "story", f"S-{uuid4()}", "--project", str(uuid4()), "--json")
    taken = []
    for number in range(FIRED):
        began = time.perf_counter()
        words = ("fire", json.loads(story)["id"], MOVES[number % 2], "--by", "bench", "--wait")
        _interlock(settings, *words)
        taken.append(time.perf_counter() - began)
    return median(taken)


def _processes(home: Home) -> list[psutil.Process]:
    supervisor = psutil.Process(json.loads(home.processes.read_text())["supervisor"])
    return [supervisor, *orphans.of_home(home, data_places(home))]


def _processor_seconds(home: Home) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in _processes(home))


def _interlock(settings: Settings, *words: str) -> str:
    command = [*PYTHON, "-m", "interlock.cli.fork_server.launcher", *words]
    variables = environment(settings)
    variables.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation has bytecode: else each part compiles its modules
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`interlock {' '.join(words)}` failed: {done.stderr}")
    return done.stdout


@contextmanager
def _home() -> Iterator[Settings]:
    """A home that the servers' user can reach; it is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="interlock-bench-") as directory:
        Path(directory).chmod(0o711)
        settings = Settings(home=Path(directory) / "home")
        try:
            yield settings
        finally:
            _interlock(settings, "down", "--purge", "--yes")
