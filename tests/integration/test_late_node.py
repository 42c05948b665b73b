"""The node of `deliveries` starts with the first subscription; until then it is a small process that looks for one."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.supervisor.environment import environment
from interlock.workers import late_node
from interlock.workers.client.client import Client
from interlock.workers.overrides.subscriptions import WantedEvents, subscribe
from interlock.workers.overrides.transaction import OverrideOrder
from interlock.workers.settings import Settings
from tests.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ann")]


def subscribed(client: Client) -> None:
    order, wanted = OverrideOrder("ann", "release notes"), WantedEvents()
    subscribe(client.runtime, "chat", "https://a.example/", order, secrets=["file:own"], wanted=wanted)


def test_it_is_needed_once_there_is_a_subscription_and_not_while_nobody_answers(client: Client) -> None:
    url = client.runtime.settings.resolved_database_url().replace("+psycopg", "", 1)
    assert not late_node.needed(url)
    subscribed(client)
    assert late_node.needed(url)
    assert not late_node.needed("postgresql://127.0.0.1:1/nobody")


def ended(settings: Settings, folder: Path, once: Callable[[Path, str], bool]) -> str:
    """Run the node until `once` holds of its ready file and its log, and end it; what it logged."""
    ready, log = folder / "ready", folder / "log"
    ready.unlink(missing_ok=True)
    options = (
        "-n",
        "late@%h",
        "-Q",
        "deliveries",
        "--pool",
        "threads",
        "-c",
        "2",
        "--without-gossip",
        "--without-mingle",
    )
    command = [sys.executable, "-m", "interlock.workers.late_node", "worker", *options]
    env = environment(settings) | {"INTERLOCK_READY_FILE": str(ready)}
    with log.open("w") as output, subprocess.Popen(command, env=env, stdout=output, stderr=output) as process:
        try:
            eventually(lambda: ready.exists() and once(ready, log.read_text()), 60)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    return log.read_text()


def test_it_ends_by_sigterm_before_it_is_a_node_and_after(settings: Settings, client: Client, tmp_path: Path) -> None:
    assert ended(settings, tmp_path, lambda ready, _: ready.exists()) == ""
    subscribed(client)
    assert "late@" in ended(settings, tmp_path, lambda _, logged: "late@" in logged)
