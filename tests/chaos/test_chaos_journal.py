"""SIGKILL of the relay at any point: the journal has every committed event exactly once, in commit order."""

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, groupby
from pathlib import Path
from uuid import UUID

import pytest

from interlock.supervisor.environment import environment
from interlock.workers.client.client import Client
from interlock.workers.engine.trigger_request import Firing
from interlock.workers.relay.journal import Journal, files
from interlock.workers.relay.relay import relay
from tests.driving import drain_all
from tests.integration.test_journal import assert_whole, events

pytestmark = pytest.mark.chaos
ROOT = Path(__file__).parents[2]
STORIES, KILLS = 6, 12
FILES = 11  # so many parts at least: each is set aside by a rename


class Victim:
    """The process of `journal_victim`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def die(self, order: str) -> str:
        """Have one child end as told; how it did."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def victim(client: Client, directory: Path) -> Iterator[Victim]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.journal_victim", str(directory)],
        cwd=ROOT,
        env=environment(client.runtime.settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Victim(process)
        assert process.stdin
        process.stdin.close()


@pytest.fixture
def stories(client: Client, project: str) -> list[UUID]:
    births = [client.birth("story", f"S-{number}", project=project) for number in range(STORIES)]
    client.create_many(births)
    return [birth.id for birth in births]


def assert_right(client: Client, directory: Path) -> None:
    """After one relay that lives: nothing is missing, twice or out of order, and each entity's events follow on."""
    relay(client.runtime.database, [Journal(directory, max_bytes=4_000, daily=True)])
    assert_whole(client, directory)
    by_entity = sorted(events(directory), key=lambda event: str(event["entity_id"]))  # stable
    for _, own in groupby(by_entity, key=lambda event: event["entity_id"]):
        seqs = [event["context"]["seq"] for event in own]
        assert seqs == list(range(1, len(seqs) + 1))


def test_killed_before_within_and_after_each_of_its_system_calls(
    client: Client, stories: list[UUID], tmp_path: Path
) -> None:
    directory = tmp_path / "state"
    moves = cycle(("block", "unblock"))
    ends = []
    with victim(client, directory) as process:

        def die(place: str) -> str:
            move = next(moves)
            client.fire_many([Firing(story, move, "a") for story in stories])
            drain_all(client.runtime)
            ends.append(process.die(f"call {place}"))
            return ends[-1]

        die("1 BEFORE")  # before any other is after the one before
        for call in range(1, 26):
            if die(f"{call} HALF") == "half killed":  # else it died after it
                die(f"{call} AFTER")
    assert ends.count("killed") > 17, ends  # the highest calls come after all that there was to do
    assert ends.count("half killed") > 2, ends
    assert len(files(directory)) >= FILES
    assert_right(client, directory)


def test_killed_at_any_moment_while_events_are_committed(client: Client, stories: list[UUID], tmp_path: Path) -> None:
    directory, over = tmp_path / "state", threading.Event()
    ends: list[str] = []

    def traffic() -> None:
        for move in cycle(("block", "unblock")):
            client.fire_many([Firing(story, move, "a") for story in stories])
            drain_all(client.runtime)
            if over.is_set():
                return

    firing = threading.Thread(target=traffic)
    firing.start()
    try:
        with victim(client, directory) as process:
            while len(ends) < KILLS or len(files(directory)) < FILES:
                ends.append(process.die(f"time {random.uniform(0.0, 0.25):.4f}"))
    finally:
        over.set()
        firing.join()
    assert {*ends} == {"killed"}
    assert_right(client, directory)
