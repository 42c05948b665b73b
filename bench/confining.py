"""`sandbox`: a command from its request to its end, in a sandbox and without one."""

import os
import time
from pathlib import Path
from statistics import median

from bench.effort import Effort
from bench.finding import Bar, Finding
from bench.progress import Rounds
from bench.stage import Stage
from interlock.workers.execution.command import Command
from interlock.workers.execution.process import run
from interlock.workers.isolation.boundary import boundary, isolated
from interlock.workers.sandbox.sandbox import View
from interlock.workers.settings import Settings

WARM_UP = 3
COMPARED = "a command that does nothing, in a sandbox : without one"


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """`true` in a worktree, run as tasks are; the sides alternate command by command within a round."""
    settings = stage.settings(stage.servers)
    if (found := boundary(settings)).bubblewrap is None:
        return [Finding("sandbox", COMPARED, "ms", note=f"not measured: {found.why}")]
    place = _worktree(settings)
    plain = settings.model_copy(update={"sandbox": "off"})
    _pairs(place, settings, plain, WARM_UP)
    ours, theirs, more = zip(*(_pairs(place, settings, plain, effort.commands) for _ in rounds), strict=True)
    note = f"median of {effort.commands} a round each, from the call to its result, {found}"
    return [
        Finding("sandbox", COMPARED, "ms", ours, theirs, note=note),
        Finding("sandbox.more", "what the sandbox adds", "ms", more, bar=Bar("≤", 20.0), note="median of the pairs"),
    ]


def _pairs(place: Path, confined: Settings, plain: Settings, commands: int) -> tuple[float, float, float]:
    """Medians in milliseconds: in a sandbox, without one, and of the differences within each pair."""
    sides = [(confined, plain) if number % 2 else (plain, confined) for number in range(commands)]
    taken = [{each is confined: _milliseconds(place, each) for each in pair} for pair in sides]
    return (
        median(each[True] for each in taken),
        median(each[False] for each in taken),
        median(each[True] - each[False] for each in taken),
    )


def _milliseconds(place: Path, settings: Settings) -> float:
    began = time.perf_counter()
    ended = run(isolated(Command(("true",), place), View(places=(place,)), settings))
    took = time.perf_counter() - began
    if not ended.succeeded():
        raise RuntimeError(f"`true` failed: {ended}")
    return took * 1e3


def _worktree(settings: Settings) -> Path:
    """A directory as tasks have it: in the home, owned by the commands' user."""
    place = settings.worktrees_directory / "bench" / "task"
    place.mkdir(parents=True)
    if account := boundary(settings).account:
        for each in (place.parents[1], place.parent):
            each.chmod(0o711)
        os.chown(place, account.uid, account.gid)
    return place
