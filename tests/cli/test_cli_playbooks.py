"""The playbooks about processes and servers, on an installation that runs: what is killed, the page cures."""

import os
import signal
from typing import Any

import psutil
import psycopg
import pytest
from redis import Redis

from interlock.supervisor.home import home_of
from interlock.supervisor.servers import endpoints
from interlock.workers.settings import Settings
from tests.cli.terminal import Terminal
from tests.playbooks import type_in
from tests.waiting import eventually


def part(terminal: Terminal, name: str) -> dict[str, Any]:
    return next(each for each in terminal.ok("status")["parts"] if each["name"] == name)


def ready(terminal: Terminal) -> None:
    """Everything runs and is well again."""
    eventually(lambda: terminal.ok("doctor"), timeout=90, every=1.0)


@pytest.fixture(autouse=True)
def well(terminal: Terminal) -> None:
    ready(terminal)


def patiently(terminal: Terminal, name: str, heading: str, **words: object) -> None:
    """Type a section until it succeeds: parts take their seconds to come back."""
    eventually(lambda: type_in(terminal, name, heading, **words) or True, timeout=120, every=2.0)


def test_a_beat_that_hangs_is_killed_and_comes_back(terminal: Terminal) -> None:
    beat = part(terminal, "beat")
    os.kill(beat["pid"], signal.SIGSTOP)
    type_in(terminal, "beat-is-dead", "Check")
    patiently(terminal, "beat-is-dead", "Cure")
    ready(terminal)
    assert part(terminal, "beat")["pid"] != beat["pid"]


def test_what_was_accepted_outlives_a_wiped_redis(terminal: Terminal, story: str) -> None:
    with Redis.from_url(endpoints.load(home_of(Settings(home=terminal.home))).broker_url) as broker:
        broker.flushall()
    type_in(terminal, "redis-was-wiped", "Check")
    patiently(terminal, "redis-was-wiped", "Cure", STORY=story)


def test_postgres_comes_back_and_nothing_accepted_is_lost(
    terminal: Terminal, story: str, dba: "psycopg.Connection[Any]"
) -> None:
    terminal.ok("fire", story, "design_complete", "--by", "ann", "--wait")
    os.kill(part(terminal, "postgres")["pid"], signal.SIGKILL)
    eventually(lambda: type_in(terminal, "postgres-restarted", "Check"), timeout=60, every=1.0)
    patiently(terminal, "postgres-restarted", "Cure")
    assert terminal.ok("show", story)["current_state"] == "design"
    dba.close()


def test_a_node_that_takes_nothing_is_killed_and_another_takes_its_work(terminal: Terminal, story: str) -> None:
    nodes = {name: part(terminal, name)["pid"] for name in ("triggers1", "triggers2")}
    for pid in nodes.values():
        psutil.Process(pid).suspend()
    type_in(terminal, "worker-takes-nothing", "Check")
    type_in(terminal, "worker-takes-nothing", "Cure", STORY=story)
    assert all(part(terminal, name)["pid"] != pid for name, pid in nodes.items())
    ready(terminal)
