"""`latency`: from the call of `fire` to the commit, against the empty task from `delay` to its run, at 20/s each.

The sides alternate within a round, 25 ms apart, so that they have the same conditions. Ours ends when COMMIT has
returned to the worker, theirs when the task body runs. Each writes the instant (`CLOCK_MONOTONIC`, one clock for all
processes) into shared memory, which takes a microsecond. The event bus message of our move tells which commit it was.
"""

import json
import time
from mmap import mmap
from pathlib import Path
from statistics import median, quantiles
from uuid import UUID

from redis import Redis

from bench.effort import Effort
from bench.empty import SLOT, Empty, open_slots, stamp
from bench.finding import Bar, Finding
from bench.nodes import interlock_nodes, plain_node
from bench.plant import Plant
from bench.progress import Rounds
from bench.stage import Stage

PERIOD_SECONDS = 0.05
WARM_UP = 600
PATIENCE_SECONDS = 10.0

Figures = list[list[float]]  # one list per round, in milliseconds


def measure(stage: Stage, effort: Effort, rounds: Rounds) -> list[Finding]:
    """p50 and p99 of each round."""
    ours, theirs = stage.side("latency"), stage.side("latency_empty", empty=True)
    each_round = round(effort.latency_seconds / PERIOD_SECONDS)
    slots, notes = stage.home.path / "slots", stage.home.path / "notes"
    slots.write_bytes(bytes(SLOT.size * each_round * rounds.number))
    notes.write_bytes(bytes(SLOT.size))
    with interlock_nodes(stage, ours, notes=notes), plain_node(stage, "bench.empty", theirs, slots):
        plant, empty = Plant(stage, ours), Empty(theirs.broker_url)
        plant.populate()
        plant.single(WARM_UP)
        empty.single(WARM_UP)
        applied, ran = _in_turns(plant, slots, notes, rounds, each_round)
        plant.close()
        empty.close()
    note = f"{each_round} a round and side at 20/s; ours until COMMIT has returned, theirs until the task's first line"
    return [
        Finding(
            "latency.p50", "enqueue to commit : to empty task's run", "ms", *_p50(applied, ran), Bar("≤", 2.0), note
        ),
        Finding("latency.p99", "enqueue to commit : to empty task's run", "ms", *_p99(applied, ran)),
    ]


def _in_turns(plant: Plant, slots: Path, notes: Path, rounds: Rounds, each_round: int) -> tuple[Figures, Figures]:
    ours: Figures = []
    theirs: Figures = []
    with open_slots(notes) as commits, Listener(plant, commits) as listener, open_slots(slots) as memory:
        for number in rounds:
            applied, sent = [], []
            due = time.perf_counter()
            for turn in range(each_round):
                due = _pause_until(due + PERIOD_SECONDS / 2)
                applied.append(listener.fire())
                due = _pause_until(due + PERIOD_SECONDS / 2)
                sent.append(time.monotonic_ns())
                stamp.delay(number * each_round + turn)
            time.sleep(PERIOD_SECONDS)
            ours.append(applied)
            theirs.append([_ran(memory, number * each_round + turn, at) for turn, at in enumerate(sent)])
    return ours, theirs


class Listener:
    """Fires a trigger, waits for its event on the bus, and reads the instant of its commit."""

    def __init__(self, plant: Plant, commits: mmap) -> None:
        self._plant = plant
        self._commits = commits
        self._bus = Redis.from_url(plant.client.runtime.settings.resolved_broker_url())
        self._heard = self._bus.pubsub(ignore_subscribe_messages=True)

    def __enter__(self) -> "Listener":
        self._heard.psubscribe("project:*")
        self._heard.get_message(ignore_subscribe_messages=False, timeout=PATIENCE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._heard.close()
        self._bus.close()

    def fire(self) -> float:
        """Milliseconds from the call to the commit."""
        instance_id, trigger = self._plant.next()
        began = time.monotonic_ns()
        self._plant.client.fire(instance_id, trigger, by="bench")
        self._hear(instance_id)
        return float(SLOT.unpack_from(self._commits)[0] - began) / 1e6

    def _hear(self, instance_id: UUID) -> None:
        until = time.perf_counter() + PATIENCE_SECONDS
        while (left := until - time.perf_counter()) > 0:
            message = self._heard.get_message(timeout=left)
            if message and json.loads(message["data"])["workflow_id"] == str(instance_id):
                return
        raise RuntimeError(f"no event within {PATIENCE_SECONDS:g} s")


def _pause_until(due: float) -> float:
    """Sleep until `due`; returns when it really is, so that a late turn delays the following ones."""
    left = due - time.perf_counter()
    if left > 0:
        time.sleep(left)
        return due
    return time.perf_counter()


def _ran(memory: mmap, slot: int, sent_ns: int) -> float:
    until = time.perf_counter() + PATIENCE_SECONDS
    while not (at := SLOT.unpack_from(memory, slot * SLOT.size)[0]):
        if time.perf_counter() > until:
            raise RuntimeError(f"empty task {slot} did not run within {PATIENCE_SECONDS:g} s")
        time.sleep(0.01)
    return float(at - sent_ns) / 1e6


def _p50(*sides: Figures) -> list[tuple[float, ...]]:
    return [tuple(median(each) for each in side) for side in sides]


def _p99(*sides: Figures) -> list[tuple[float, ...]]:
    return [tuple(quantiles(each, n=100)[98] for each in side) for side in sides]
