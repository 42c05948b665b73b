"""URLs of settings carry passwords and tokens: none of that stands in the database, a log, an answer or a trace."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from uuid_utils.compat import uuid7

from interlock.workers import effect_runner
from interlock.workers.client.client import Client
from interlock.workers.runtime import Runtime
from tests.cli.terminal import Terminal
from tests.collector import Collector
from tests.driving import drain_all
from tests.waiting import eventually

SECRET = "s3cr3tSentinel"
NOWHERE = "127.0.0.1:1"
SETTINGS = {
    "DATABASE_URL": f"postgresql://ann:{SECRET}@{NOWHERE}/x?application_name={SECRET}",
    "BROKER_URL": f"redis://:{SECRET}@{NOWHERE}/0",
    "INTERLOCK_REDIS_URL": f"redis://:{SECRET}@{NOWHERE}/1",
    "INTERLOCK_NOTIFY_URLS": f"json://ann:{SECRET}@{NOWHERE}/{SECRET},slack://{SECRET}",
}
UNREADABLE = {
    "DATABASE_URL": f"postgresql://ann:{SECRET}/{SECRET}@{NOWHERE}/x",
    "BROKER_URL": f"nonsense://{SECRET}@{NOWHERE}",
    "INTERLOCK_REDIS_URL": f"redis://:{SECRET}#x@{NOWHERE}",
}
COMMANDS = (
    ("doctor",),
    ("status",),
    ("status", "--json"),
    ("list",),
    ("list", "--json"),
    ("migrate",),
    ("backup", "take"),
)


@pytest.mark.parametrize(
    "target", [f"json://ann:{SECRET}@{NOWHERE}/{SECRET}?+X={SECRET}", f"nonsense://{SECRET}/{SECRET}"]
)
def test_a_notice_that_fails_tells_its_targets_scheme_and_host_and_no_more(
    knowing: Callable[..., Runtime],
    target: str,
    collecting: Collector,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    dba: "psycopg.Connection[Any]",
) -> None:
    client = Client(knowing("tests.machines", notify_urls=(target,)))
    made = client.create("announcement", "A-1", project=uuid7())["id"]
    client.fire(made, "announce", by="ann")
    drain_all(client.runtime)
    (effect,) = client.show(made)["effects"]
    with caplog.at_level(logging.DEBUG, logger="interlock"):
        effect_runner.run(client.runtime, effect["id"])
    (error,) = dba.execute("SELECT error FROM effects").fetchone() or ("",)
    assert error.startswith("NoticeNotSent")
    assert target.partition("://")[0] in error
    eventually(lambda: bool(collecting.named("interlock.effect")), timeout=30)
    kept = dba.execute("SELECT to_jsonb(e)::text FROM effects e").fetchall()
    said = capfd.readouterr()
    for text in (str(kept), caplog.text, said.out, said.err, str(collecting.spans)):
        assert SECRET not in text


@pytest.mark.parametrize("settings_", [SETTINGS, *({name: value} for name, value in UNREADABLE.items())], ids="+".join)
def test_no_command_tells_what_a_url_of_its_settings_carries(tmp_path: Path, settings_: dict[str, str]) -> None:
    nowhere = Terminal(tmp_path / "home", settings_)
    for answer in nowhere.each(COMMANDS):
        assert SECRET not in answer.said, answer.words
        assert "Traceback" not in answer.said


LOGS = """
import logging, sys
from interlock.workers.telemetry import logs

logs.configure()
logging.getLogger("x").warning("cannot reach %s\\n{forged}\\x1b[2J\\u202e", sys.argv[1])
"""


def test_a_log_tells_no_password_of_a_url_and_has_one_line_for_each_event() -> None:
    words = [sys.executable, "-c", LOGS, SETTINGS["BROKER_URL"]]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert SECRET not in line
    assert json.loads(line)["event"].startswith("cannot reach redis://…@127.0.0.1:1/0\n{forged}")
    assert "\u202e" not in line
