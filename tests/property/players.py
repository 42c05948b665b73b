"""Processes that carry out one run together: each is scheduler, applier and worker at once, in an order of its own."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from interlock.db.connection import retryable, transaction
from interlock.db.schema import in_schema
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.orchestration.scheduler import schedule
from interlock.workers.runtime import Runtime
from interlock.workers.settings import Settings
from interlock.workflows.errors import NotYours
from tests.driving import partitions_due
from tests.rights import fire_all

T = TypeVar("T")

FORKS = multiprocessing.get_context("forkserver")  # never a fork of pytest itself, with its connections
PATIENCE_SECONDS = 120.0
OPEN = in_schema("""
SELECT t.task_id AS id, i.version, t.state AS state, i.entity_id AS name, t.retry_count
  FROM interlock.tasks t JOIN interlock.workflow_instances i ON i.id = t.task_id
 WHERE t.run_id = :run AND t.state IN ('queued', 'running', 'retrying')
UNION ALL
SELECT g.gate_id, i.version, g.state, i.entity_id, 0
  FROM interlock.test_gates g JOIN interlock.workflow_instances i ON i.id = g.gate_id
 WHERE g.run_id = :run
   AND (g.state = 'RUNNING' OR g.state = 'PENDING' AND EXISTS (
            SELECT FROM interlock.effects e WHERE e.workflow_id = g.gate_id AND e.name = 'run_gate'))
UNION ALL
SELECT w.ws_id, i.version, w.state, i.entity_id, 0
  FROM interlock.workstreams w JOIN interlock.workflow_instances i ON i.id = w.ws_id
 WHERE w.run_id = :run AND w.state = 'validating'
   AND EXISTS (SELECT FROM interlock.effects e WHERE e.workflow_id = w.ws_id AND e.name = 'land_workstream')
""")
STATE = in_schema("SELECT state FROM interlock.runs WHERE run_id = :run")


@dataclass(frozen=True)
class Fates:
    """What is said of whom: the same by every player, and by the model. `failing`: name -> how often it fails first."""

    failing: dict[str, int]

    def trigger(self, name: str, state: str, failed_before: int) -> str:
        fails = failed_before < self.failing.get(name, 0)
        return {
            "queued": "worker_started",
            "running": "execution_failed" if fails else "execution_completed",
            "retrying": "retry_delay_elapsed",
            "PENDING": "gate_started",
            "RUNNING": "gate_failed" if fails else "gate_passed",
            "validating": "validation_passed",
        }[state]


def play_together(settings: Settings, run: UUID, worker: UUID, fates: Fates, players: int) -> list[int]:
    """Carry out a run in so many processes; how many signals each of them read as a scheduler."""
    ready, said = FORKS.Barrier(players), FORKS.Queue()
    made = [
        FORKS.Process(target=_play, args=(settings, run, worker, fates, seed, ready, said)) for seed in range(players)
    ]
    for process in made:
        process.start()
    try:
        played = [said.get(timeout=PATIENCE_SECONDS) for _ in made]
        assert all(isinstance(read, int) for read in played), played
        return played
    finally:
        for process in made:
            process.join(5)
            process.kill()
            process.join()
            process.close()


def _play(settings: Settings, *given: Any) -> None:
    said = given[-1]
    try:
        said.put(_carry_out(settings, *given[:-1]))
    except BaseException as error:
        said.put(repr(error))
        raise


def _carry_out(settings: Settings, run: UUID, worker: UUID, fates: Fates, seed: int, ready: Any) -> int:
    runtime, chances, read = Runtime(settings), Random(seed), 0
    client = Client(runtime)
    ready.wait(PATIENCE_SECONDS)
    while True:
        due = partitions_due(runtime)  # all players see the same, and meet in it
        for partition in chances.sample(due, len(due)):
            _insisting(lambda partition=partition: runtime.applier.apply_partition(partition))
        read += (seen := _insisting(lambda: schedule(runtime, run)))
        with transaction(runtime.database) as connection:
            found = [dict(row) for row in connection.execute(text(OPEN), {"run": run}).mappings()]
            state = connection.execute(text(STATE), {"run": run}).scalar_one()
        if not found and not seen and state in ("succeeded", "failed", "canceled"):
            break
        for each in _reports(chances.sample(found, min(len(found), 10)), worker, fates):
            with suppress(NotYours):  # another player ended it meanwhile
                fire_all(client, [each])
    runtime.close()
    return read


def _insisting(work: Callable[[], T]) -> T:
    """As Celery's tasks do: what collided with another's work is done again."""
    while True:
        try:
            return work()
        except DBAPIError as error:
            if not retryable(error):
                raise


def _reports(found: list[dict[str, Any]], worker: UUID, fates: Fates) -> Iterator[Firing]:
    """One report for each entry of a state: whoever else reports the same says the same, and is answered as before."""
    for each in found:
        trigger = fates.trigger(each["name"], each["state"], each["retry_count"])
        data: dict[str, Any] = {"exit_code": int(trigger.endswith("failed"))}
        if trigger == "worker_started":
            data = {"worker_id": str(worker), "capabilities": []}
        yield Firing(each["id"], trigger, "player", f"{each['id']}:{each['version']}:said", data)
