"""`down` ends what it started, wherever it ran to, and nothing else, whatever it looks like."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interlock.supervisor import daemon, orphans
from interlock.supervisor.home import Home, home_of
from interlock.workers.settings import Settings
from interlock.workers.system.users import commands_account, server_account, spawn_options
from tests.homes import open_directory
from tests.waiting import eventually

pytestmark = pytest.mark.integration
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
SLEEP = shutil.which("sleep") or "/bin/sleep"


@pytest.fixture
def settings() -> Iterator[Settings]:
    """Of a home in which nothing runs, with a data directory."""
    with open_directory() as directory:
        chosen = Settings(home=directory / "home")
        home = home_of(chosen)
        home.create()
        (home.path / "postgres").mkdir()
        yield chosen


@pytest.fixture
def begun() -> Iterator[ExitStack]:
    """Ends what a test started."""
    with ExitStack() as stack:
        yield stack


def start(begun: ExitStack, *words: str, **options: object) -> "subprocess.Popen[bytes]":
    """A process that lasts until the test is over, and is what it is to be by now."""
    process = subprocess.Popen(words, **options)  # type: ignore[call-overload]
    begun.enter_context(process)  # closes its pipes, waits
    begun.callback(process.kill)
    eventually(lambda: Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(words[0].encode()))
    return process  # type: ignore[no-any-return]


def marked(home: Home) -> dict[str, str]:
    return {**os.environ, orphans.MARK: str(home.path)}


def server(home: Home) -> str:
    """A program of the servers' name. That it only sleeps nobody can see from outside."""
    program = home.path.parent / "postgres"
    shutil.copy2(SLEEP, program)
    return str(program)


def test_a_bystanders_shell_in_the_data_directory_is_left_alone(settings: Settings, begun: ExitStack) -> None:
    home = home_of(settings)
    shell = start(begun, "/bin/sh", cwd=home.path / "postgres", stdin=subprocess.PIPE)
    other = start(begun, SLEEP, "60", env={**os.environ, orphans.MARK: f"{home.path}-other"})
    assert not daemon.stop(settings)
    assert shell.poll() is None
    assert other.poll() is None


def test_what_bears_the_homes_mark_and_servers_in_its_data_are_ended(settings: Settings, begun: ExitStack) -> None:
    home = home_of(settings)
    part = start(begun, SLEEP, "60", env=marked(home))
    left = start(begun, server(home), "60", cwd=home.path / "postgres")
    assert daemon.stop(settings)
    assert (part.poll(), left.poll()) != (None, None)
    assert None not in (part.wait(1), left.wait(1))


def test_servers_are_found_after_somebody_deleted_their_data(settings: Settings, begun: ExitStack) -> None:
    home = home_of(settings)
    left = start(begun, server(home), "60", cwd=home.path / "postgres")
    (home.path / "postgres").rmdir()
    assert daemon.stop(settings)
    assert left.wait(1) is not None


@as_root
def test_another_users_process_is_not_ended_for_bearing_the_mark(settings: Settings, begun: ExitStack) -> None:
    """Anybody may set a variable, give a program a name, and stand in a directory that is open."""
    home = home_of(settings)
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    forged = start(begun, SLEEP, "60", env=marked(home), **nobody)
    posing = start(begun, server(home), "60", cwd=home.path / "postgres", **nobody)
    assert not daemon.stop(settings)
    assert (forged.poll(), posing.poll()) == (None, None)


@as_root
def test_strays_of_servers_and_of_commands_are_ended_as_the_users_they_run_as(
    settings: Settings, begun: ExitStack
) -> None:
    home = home_of(settings)
    accounts = (server_account(settings), commands_account(settings))
    found = [start(begun, SLEEP, "60", env=marked(home), **spawn_options(each)) for each in accounts]
    assert daemon.stop(settings)
    assert all(each.wait(1) is not None for each in found)
