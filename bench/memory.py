"""`memory`: resident memory of a worker node and of a client after many instances were created and moved."""

import gc
from pathlib import Path

import psutil

from bench.effort import Effort
from bench.finding import Bar, Finding
from bench.nodes import interlock_nodes, resident_bytes
from bench.plant import Plant
from bench.progress import Rounds
from bench.stage import Stage
from demo.replay import replay
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime

WARM_UP = 10_000
REPLAYED = Path(__file__).parents[2] / "shared" / "data" / "pull_requests.jsonl"
PATIENCE_SECONDS = 300.0


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """Memory afterwards divided by memory before; measured once, not in rounds."""
    return [*_crowd(stage, effort, rounds), *_replay(stage, rounds)]


def _crowd(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    side = stage.side("memory")
    with interlock_nodes(stage, side) as nodes:
        plant = Plant(stage, side)
        plant.populate()
        plant.bulk(WARM_UP)  # so that pools, caches and prepared statements have reached their full size
        before, here, objects = resident_bytes(nodes), _own_bytes(), _objects()
        rounds.say(f"creating and moving {effort.crowd:,} instances")
        plant.populate(effort.crowd)
        plant.bulk(effort.crowd)
        plant.forget()
        after, here_after, more = resident_bytes(nodes), _own_bytes(), _objects() - objects
        plant.close()
    message = f"{effort.crowd:,} instances created and moved : before"
    return [
        Finding("memory.worker", f"worker node, {message}", "MiB", _mib(after), _mib(before), Bar("≤", 1.2)),
        Finding(
            "memory.client",
            f"client, {message}",
            "MiB",
            _mib(here_after),
            _mib(here),
            note=f"{more / effort.crowd:.2f} Python objects an instance are left in the client that fired all of them",
        ),
    ]


def _replay(stage: Stage, rounds: Rounds) -> list[Finding]:
    """A worker node before and after the replay of real pull requests; skipped if their file is missing."""
    message = "worker node, after the replay of 914 pull requests : before"
    if not REPLAYED.exists():
        return [Finding("memory.replay", message, "MiB", note=f"skipped: {REPLAYED} is not there")]
    side = stage.side("memory_replay")
    with interlock_nodes(stage, side) as nodes:
        plant = Plant(stage, side)
        plant.populate()
        plant.bulk(WARM_UP)
        plant.close()
        before = resident_bytes(nodes)
        rounds.say("replaying pull requests")
        with Client(Runtime(stage.settings(side))) as client:
            replay(client, REPLAYED, reviewer="bench", progress=lambda *_: None, patience_seconds=PATIENCE_SECONDS)
        after = resident_bytes(nodes)
    return [Finding("memory.replay", message, "MiB", _mib(after), _mib(before), Bar("≤", 1.2))]


def _own_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def _mib(size: int) -> tuple[float]:
    return (size / 2**20,)
