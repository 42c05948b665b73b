"""The loop over the parts, with small parts of our own: restarted, given up on, stopped in order, all the way down."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from interlock.supervisor.home import Home
from interlock.supervisor.processes.loop import Supervision
from interlock.supervisor.processes.process import Child, PartReport
from interlock.supervisor.processes.spec import Part
from interlock.workflows.errors import ServerFault
from tests.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


def part(name: str, program: str, **changed: object) -> Part:
    """A part that runs a Python program and is ready at once."""
    command = (sys.executable, "-u", "-c", program)
    return Part(name, command, dict(os.environ), lambda _pid: None, **changed)  # type: ignore[arg-type]


def supervise(home: Home, rows: list[Part], until: Callable[[list[PartReport]], bool]) -> list[list[PartReport]]:
    """Run `rows` until what is reported satisfies `until`, or a minute passed; returns every report."""
    seen: list[list[PartReport]] = []
    deadline = time.monotonic() + 60

    def told() -> bool:
        return (bool(seen) and until(seen[-1])) or time.monotonic() > deadline

    Supervision(home, told, time.sleep, seen.append).run(rows, (), {}, lambda: None)
    assert time.monotonic() < deadline
    return seen


SLEEPS = "import time; time.sleep(60)"
DIES = "import time; time.sleep(0.3)"  # late enough to be seen ready, on a busy machine too
IGNORES_SIGTERM = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(60)"
FORKS = "import subprocess, sys; subprocess.run(['sleep', '61'])"


def test_a_part_that_died_is_started_again(home: Home) -> None:
    killed: set[int] = set()

    def restarted(parts: list[PartReport]) -> bool:
        only = parts[0]
        if only.state == "ready" and only.pid and not killed:
            killed.add(only.pid)
            os.kill(only.pid, signal.SIGKILL)
        return only.state == "ready" and only.restarts == 1

    seen = supervise(home, [part("sleeper", SLEEPS)], restarted)
    assert any("SIGKILL" in reports[0].detail for reports in seen)
    assert seen[-1][0].state == "stopped"


def test_waits_between_restarts_double(home: Home) -> None:
    seen = supervise(home, [part("dies", DIES)], lambda parts: parts[0].restarts == 3)
    waits = {reports[0].detail.split("again in ")[-1] for reports in seen if "again" in reports[0].detail}
    assert {"0.2 s", "0.4 s", "0.8 s"} <= waits


def test_a_dead_parts_own_children_go_with_it(home: Home, tmp_path: Path) -> None:
    child = Child(part("node", FORKS), tmp_path / "node.log", lambda: None)
    child.start()
    pid = child.report().pid or 0
    grandchild = eventually(lambda: psutil.Process(pid).children())[0]
    os.kill(pid, signal.SIGKILL)

    def noticed() -> bool:
        child.tend()
        return child.state == "restarting"

    eventually(noticed)
    eventually(lambda: not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE)


def test_a_part_that_ignores_its_stop_signal_is_killed_in_time(home: Home, tmp_path: Path) -> None:
    child = Child(part("deaf", IGNORES_SIGTERM, stop_seconds=0.2), tmp_path / "deaf.log", lambda: None)
    child.start()
    eventually(lambda: "deaf" in child.log.read_text())
    child.ask_to_stop()
    assert not child.finish_stop()
    eventually(child.finish_stop)
    assert child.state == "stopped"


def test_servers_stop_after_the_nodes_that_need_them(home: Home) -> None:
    rows = [part("postgres", SLEEPS), part("valkey", SLEEPS), part("triggers1", SLEEPS), part("beat", SLEEPS)]
    seen = supervise(home, rows, lambda parts: len(parts) == 4 and all(p.state == "ready" for p in parts))
    order: list[str] = []
    for reports in seen:
        stopped = [p.name for p in reports if p.state == "stopped" and len(reports) == 4]
        order += [name for name in stopped if name not in order]
    assert order[-2:] == ["valkey", "postgres"]


def test_a_part_that_never_gets_ready_is_an_error_with_its_last_words(home: Home) -> None:
    rows = [Part("broken", part("", "raise SystemExit('no such queue')").command, {}, lambda _pid: "not yet")]
    with pytest.raises(ServerFault, match=r"broken did not become ready \(ended with code 1.*\n.*no such queue"):
        supervise(home, rows, lambda _parts: False)


def test_a_failing_preparation_is_an_error_and_stops_the_servers(home: Home) -> None:
    seen: list[list[PartReport]] = []
    prepare = [sys.executable, "-c", "raise SystemExit('no such revision')"]
    with pytest.raises(ServerFault, match="no such revision"):
        Supervision(home, lambda: False, time.sleep, seen.append).run(
            [part("postgres", SLEEPS)], prepare, dict(os.environ), lambda: None
        )
    assert [report.state for report in seen[-1]] == ["stopped"]


def test_a_large_log_is_set_aside_at_a_start(home: Home) -> None:
    log = home.log("chatty")
    log.write_bytes(b"x" * 10_000_001)
    child = Child(part("chatty", "print('new')"), log, lambda: None)
    child.start()
    eventually(lambda: log.read_text() == "new\n")
    assert log.with_name("chatty.log.1").stat().st_size == 10_000_001
    child.ask_to_stop()
    eventually(child.finish_stop)
