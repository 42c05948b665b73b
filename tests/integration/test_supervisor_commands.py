"""`interlock up`, `down` and `status`, as someone at a terminal meets them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.supervisor.embedded import CELERY_PARTS
from tests.cli.terminal import forked
from tests.homes import Place, place
from tests.waiting import eventually

pytestmark = pytest.mark.integration

PROGRAM = "tests.integration.up_and_down"
WITHOUT = ("--without", ",".join(CELERY_PARTS))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Place]:
    with place(tmp_path) as made:
        yield made


def variables(here: Place) -> dict[str, str]:
    return {**os.environ, "INTERLOCK_HOME": str(here.path), "COLUMNS": "200"}


def start(here: Place, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", PROGRAM, *words],
        env=variables(here),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def interlock(here: Place, *words: str) -> tuple[int, str]:
    done = forked(words, variables(here), PROGRAM)
    return done.code, done.said


def restarted(here: Place) -> list[dict[str, object]]:
    """What the supervisor's log says of parts that it started again; each line of it is JSON."""
    lines = [json.loads(line) for line in here.home.log("supervisor").read_text().splitlines()]
    assert all({"event", "level", "timestamp", "part"} <= line.keys() for line in lines)
    return [line for line in lines if line["event"] == "restarting"]


def test_up_detached_status_which_part_died_and_down(here: Place, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    code, output = interlock(here, "up", "--detach", *WITHOUT)
    assert code == 0, output
    assert "postgres" in output
    assert "interlock down" in output
    if os.geteuid() == 0:
        assert "may not enter" in output

    code, output = interlock(here, "status", "--json")
    found = json.loads(output)
    assert (code, found["running"], found["home"]) == (0, True, str(here.path))
    assert [(part["name"], part["state"]) for part in found["parts"]] == [("postgres", "ready"), ("valkey", "ready")]
    assert set(found["parts"][0]) == {"name", "state", "pid", "restarts", "since", "detail"}
    assert found["redis_url"] == found["broker_url"] == here.known.broker_url
    assert "prepared" in here.home.log("prepare").read_text()

    code, output = interlock(here, "up", "--detach", *WITHOUT)
    assert code != 0
    assert "AlreadyRunning" in output

    os.kill(here.part("valkey")["pid"], signal.SIGKILL)
    (said,) = eventually(lambda: restarted(here))
    assert (said["part"], said["level"]) == ("valkey", "warning")
    assert "SIGKILL" in str(said["detail"])

    assert interlock(here, "down")[0] == 0
    code, output = interlock(here, "down")
    assert code == 0
    assert "nothing is running" in output

    code, output = interlock(here, "status", "--json")
    assert code == 1
    assert json.loads(output)["running"] is False

    assert interlock(here, "down", "--purge")[0] == 1  # nobody there to answer
    assert here.home.servers.exists()
    assert interlock(here, "down", "--purge", "--yes")[0] == 0
    assert not here.path.exists()


def test_up_stays_in_front_until_told_to_stop(here: Place) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        with start(here, "up", *WITHOUT) as process:
            eventually(lambda: here.part("valkey")["state"] == "ready" == here.part("postgres")["state"])
            eventually(lambda: here.home.log("prepare").exists())
            process.send_signal(number)
            output, _ = process.communicate(timeout=30)
        assert process.returncode == 0, output
        assert "valkey ready" in output
        assert output.endswith("stopped\n")
        assert not here.processes()
        here.home.log("prepare").unlink()


def test_status_where_nothing_ever_ran_says_so_and_makes_nothing(here: Place) -> None:
    code, output = interlock(here, "status", "--json")
    assert code == 1
    assert json.loads(output) == {
        "running": False, "home": str(here.path), "parts": [],
        "database_url": None, "client_url": None, "broker_url": None, "redis_url": None, "flower_url": None,
        "metrics_url": None, "api_url": None,
    }  # fmt: skip
    assert interlock(here, "down") == (0, f"nothing is running in {here.path}\n")
    assert not here.path.exists()


def test_an_unknown_part_is_refused_with_the_known_ones(here: Place) -> None:
    code, output = interlock(here, "up", "--without", "flour")
    assert code != 0
    assert "no part is named flour" in output
    assert "flower" in output
