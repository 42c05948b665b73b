"""What is told outside of the command line: notices and logs show a hostile name or reason, and obey none."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

from interlock.workers.effects.notification import deliver
from interlock.workflows.output.escaping import shown
from tests.webhooks import webhook

ROOT = Path(__file__).parents[2]
STEERS = "\x1b[31m\x1b]0;owned\x07\u202e\x9b2J\u200b[/bold]<b>*x*</b>\n- applied event='forged'"
OBEYED = ("\x1b]", "\x07", "\u202e", "\x9b", "\u200b")
LOG = """
import logging, sys
import structlog
from interlock.workers.telemetry.logs import configure
said = sys.argv[1]
configure()
log = structlog.get_logger()
log.info("named", name=said, of=[{"instance": said}], deep={said: [said]})
logging.getLogger("celery.worker").warning("Task %s failed: %r", said, {"name": said})
try:
    raise ValueError(said)
except ValueError:
    log.exception("failed")
"""
ENTRIES = 3


def test_a_notice_shows_its_words_in_one_line_each_and_as_plain_text() -> None:
    with webhook() as target:
        deliver([target.url], title=f"story {STEERS}: done", body=f"{STEERS}\nby {STEERS}")
    body: dict[str, Any] = json.loads(target.received[0]["body"])
    assert body["title"] == f"story {shown(STEERS)}: done"
    assert not any(each in body["title"] + body["message"] for each in OBEYED)
    assert "\\x1b]0;owned\\x07\\u202e\\x9b2J\\u200b[/bold]<b>*x*</b>" in body["message"]


def test_a_log_that_goes_to_a_file_is_a_json_object_a_line_and_steers_no_terminal_that_shows_it() -> None:
    done = subprocess.run([sys.executable, "-c", LOG, STEERS], capture_output=True, text=True, check=True, cwd=ROOT)
    entries = [json.loads(line) for line in done.stderr.splitlines()]
    assert [each["event"].split()[0] for each in entries] == ["named", "Task", "failed"]
    assert entries[0]["name"] == STEERS, "told as it is"
    assert not any(each in done.stderr for each in (*OBEYED, "\x1b"))


ODD = """
import logging, os, sys, time
import structlog
from interlock.workers.telemetry.logs import configure
configure()
log = structlog.get_logger()
log.info("odd", value={(1, 2): object()})
itself = {}
itself["itself"] = itself
log.info("within", value=itself)
log.debug("unseen")
os.close(2)
log.info("lost")
logging.getLogger("celery.worker").warning("lost too")
print("goes on")
"""


def test_a_line_that_cannot_be_told_or_written_stops_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", ODD], capture_output=True, text=True, check=True, cwd=ROOT)
    odd, within = (json.loads(line) for line in done.stderr.splitlines())
    assert (odd["event"], odd["level"], "(1, 2)" in odd["values"]) == ("odd", "info", True)
    assert within["event"] == "within"
    assert done.stdout == "goes on\n"


def test_a_log_that_goes_to_a_terminal_obeys_nothing_and_forges_no_line() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", LOG, STEERS], stderr=theirs, cwd=ROOT) as process:
        os.close(theirs)
        told = _read(ours)
    assert process.returncode == 0, told
    assert not any(each in told for each in OBEYED), told
    begun = [line for line in told.splitlines() if line and not line.startswith(" ")]
    assert len(begun) == ENTRIES, told


def _read(terminal: int) -> str:
    parts = []
    try:
        while part := os.read(terminal, 65536):
            parts.append(part)
    except OSError:  # EIO: nobody has its other end any more
        pass
    os.close(terminal)
    return b"".join(parts).decode()
