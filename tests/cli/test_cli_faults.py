"""What runs beneath goes away: the broker, the database, a port, a data directory. Clear words, no traceback."""

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.supervisor import purge
from interlock.supervisor.home import Home, home_of
from interlock.workers.settings import Settings
from tests.cli.terminal import LOOK_SECONDS, Terminal
from tests.homes import open_directory
from tests.waiting import eventually

PROJECT = "7a0e0f6e-0d2c-4a77-9a35-3f1b4d1f0c11"
CLOSED = "127.0.0.1:1"  # nobody listens there
PROMPT_SECONDS = 15.0  # accepting waits for no broker; a busy machine and a Python's start included
EXAMPLE = Path(__file__).parents[2] / "examples" / "pull_requests.jsonl"


@contextlib.contextmanager
def silent(terminal: Terminal, name: str) -> Iterator[None]:
    """A part that takes connections and answers nothing, while the block runs."""
    parts = json.loads((terminal.home / "processes.json").read_text())["parts"]
    pid = next(part["pid"] for part in parts if part["name"] == name)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("url", [f"redis://{CLOSED}/0", f"amqp://{CLOSED}//"])
def test_with_no_broker_a_trigger_is_accepted_at_once_and_applied_later(
    terminal: Terminal, story: str, url: str
) -> None:
    began = time.monotonic()
    accepted = terminal.set(BROKER_URL=url).ok("fire", story, "design_complete", "--by", "ann")
    assert time.monotonic() - began < PROMPT_SECONDS
    assert accepted["status"] == "pending"
    eventually(lambda: terminal.ok("show", story)["current_state"] == "design", timeout=60, every=LOOK_SECONDS)


def test_with_a_silent_broker_a_trigger_is_accepted_soon_and_applied_later(terminal: Terminal, story: str) -> None:
    with silent(terminal, "valkey"):
        began = time.monotonic()
        accepted = terminal.ok("fire", story, "design_complete", "--by", "ann")
        assert time.monotonic() - began < PROMPT_SECONDS
        assert accepted["status"] == "pending"
        assert terminal.ok("show", story)["current_state"] == "analysis"
        doctor = terminal.run("doctor", "--json")
        assert doctor.code == 1
        failing = {each["check"] for each in doctor.json["findings"] if each["level"] == "fail"}
        assert {"redis", "workers"} <= failing
    eventually(lambda: terminal.ok("show", story)["current_state"] == "design", timeout=60, every=LOOK_SECONDS)


def test_with_no_database_every_command_says_so_in_one_line(terminal: Terminal) -> None:
    nowhere = terminal.set(DATABASE_URL=f"postgresql://interlock:secret-word@{CLOSED}/interlock")
    commands = (
        ("create", "story", "S"), ("fire", "S", "block", "--by", "ann"), ("show", "S"),
        ("history", "S"), ("list",), ("watch", "S"), ("dead",), ("migrate",), ("audit", "verify"),
        ("redrive", "--all", "--reason", "r"),
    )  # fmt: skip
    for answer in (*nowhere.each(commands), nowhere.demo.run("replay", str(EXAMPLE))):
        assert answer.code == 1, answer.said
        answer.is_one_clear_line("database does not answer", "DATABASE_URL")
        assert "secret-word" not in answer.said
    as_json = nowhere.run("list", "--json")
    assert (as_json.code, as_json.json["error"], as_json.json["exit_code"]) == (1, "DatabaseError", 1)


def test_with_no_database_doctor_finds_that_and_definitions_do_not_care(terminal: Terminal) -> None:
    nowhere = terminal.set(DATABASE_URL=f"postgresql://{CLOSED}/interlock")
    doctor, listed = nowhere.each([("doctor", "--json"), ("definitions", "list", "--json")])
    assert doctor.code == 1
    assert next(each["level"] for each in doctor.json["findings"] if each["check"] == "database") == "fail"
    assert "Traceback" not in doctor.said
    assert listed.code == 0


def test_with_no_database_up_fails_clearly_and_leaves_nothing_running(tmp_path: Path) -> None:
    here = Terminal(tmp_path / "home", {"DATABASE_URL": f"postgresql://{CLOSED}/interlock"})
    up = here.run("up", "--detach")
    assert up.code == 1
    assert "the database does not answer" in up.err
    assert "Traceback" not in up.said
    assert here.run("status", "--json").json["running"] is False
    assert here.run("down", "--purge", "--yes").code == 0
    assert not here.home.exists()


def test_a_database_without_the_schema_names_the_command_that_makes_it(terminal: Terminal) -> None:
    url = terminal.ok("status")["database_url"]
    answer = terminal.set(DATABASE_URL=url.rpartition("/")[0] + "/postgres").run("list")
    assert answer.code == 1
    answer.is_one_clear_line("interlock migrate")


def test_a_second_up_in_the_same_directory_is_refused_and_harms_nothing(terminal: Terminal) -> None:
    before = terminal.ok("status")["parts"]
    for answer in terminal.each([("up", "--detach"), ("up",)]):
        assert answer.code == 2, answer.said
        answer.is_one_clear_line("already running", "interlock down", "INTERLOCK_HOME")
    assert terminal.ok("status")["parts"] == before


@pytest.mark.parametrize("variable", ["INTERLOCK_POSTGRES_PORT", "INTERLOCK_REDIS_PORT", "INTERLOCK_FLOWER_PORT"])
def test_a_port_in_use_is_named_with_the_setting_that_chooses_another(tmp_path: Path, variable: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        up = Terminal(tmp_path / "home", {variable: port}).run("up", "--detach")
    assert up.code == 1
    up.is_one_clear_line(port, variable)
    _clean(tmp_path / "home")


def test_a_half_written_data_directory_is_left_alone_and_explained() -> None:
    with open_directory() as directory:
        here = Terminal(directory / "home")
        data = here.home / "postgres"
        Home(here.home).claim()
        (data / "base").mkdir(parents=True)
        (data / "PG_VERSION").write_text("18\n")
        up = here.run("up", "--detach")
        assert up.code == 1
        up.is_one_clear_line(str(data), "not a complete PostgreSQL data directory", "Nothing was deleted")
        assert sorted(entry.name for entry in data.iterdir()) == ["PG_VERSION", "base"]
        _clean(here.home)


def test_a_damaged_servers_file_is_explained(tmp_path: Path) -> None:
    here = Terminal(tmp_path / "home")
    Home(here.home).claim()
    (here.home / "servers.json").write_text('{"postgres_pass')
    up = here.run("up", "--detach")
    assert up.code == 1
    up.is_one_clear_line("servers.json", "restore it")
    (here.home / "servers.json").unlink()
    _clean(here.home)


def _clean(home: Path) -> None:
    purge.purge(home_of(Settings(home=home)))
    assert not home.exists()
