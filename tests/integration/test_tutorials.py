"""Every listing of the tutorials: files are written, commands typed into one shell, and what they print is compared."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.listening import free_port
from tests.listings import Command, File, listings

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
PAGES = sorted(page.name for page in TUTORIALS.glob("*.md") if page.name != "README.md")
PORT = re.compile(r"\b80[08]0\b")
MINUTE = "Deadline(60, "  # for which a whole installation would wait
MARK = "-- end of"
UP, DOWN = "interlock up --detach", "interlock down"
UNASKED = "--without flower,metrics,backups"  # of which no page wants anything
# Pages that are followed one after another in one folder and shell, with the installation that the first one starts:
# it knows the machine `order`, which the others do without.
TOGETHER = ("django.md", "fastapi.md", "first-agent.md", "first-plan.md", "http.md")
WALKS = [TOGETHER, *((page,) for page in PAGES if page not in TOGETHER)]
RENAMED = {"django.md": "store"}  # the other's is `shop`, too: its login, schema and project


class Shell:
    """One bash in a folder, as somebody has open who follows a page."""

    def __init__(self, folder: Path) -> None:
        """Open it."""
        self.folder, self._up = folder, False
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("INTERLOCK_", "PYTHON"))}
        path = os.pathsep.join((str(Path(sys.executable).parent), mine["PATH"]))
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env={**mine, "PATH": path, "COLUMNS": "200"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.type("set -m")  # as where somebody types; it complains that nobody does

    def rest(self, line: str, *, last: bool) -> str:
        """What is to be typed of a page's line: one installation is started by the first, and stopped by the last."""
        if line == UP:
            line, self._up = "" if self._up else f"{UP} {UNASKED}", True
        return line if last else line.removesuffix(DOWN).rstrip("; ")

    def type(self, line: str) -> str:
        """Type a command; returns what it printed."""
        process = self._process
        assert process.stdin
        assert process.stdout
        process.stdin.write(f"{line}\necho '{MARK}' it\n")
        process.stdin.flush()
        printed = ""
        while not printed.endswith(f"{MARK} it\n"):
            part = process.stdout.readline()
            assert part, f"the shell ended: {printed}"
            printed += part
        return printed.removesuffix(f"{MARK} it\n")

    def end_jobs(self) -> None:
        """End what a page began, and take note of it, so that the next page is told nothing of it."""
        self.type("kill $(jobs -p) 2> /dev/null; wait; jobs > /dev/null")

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """End it and what it began."""
        with contextlib.suppress(BrokenPipeError):
            self.type("interlock down --purge --yes; kill $(jobs -p)")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """The shell in which pages are followed."""
    with contextlib.closing(Shell(tmp_path)) as opened:
        watchdog = threading.Timer(800, opened.kill)
        watchdog.start()
        yield opened
        watchdog.cancel()


@pytest.mark.parametrize("pages", WALKS, ids="+".join)
def test_tutorials_do_what_they_say(pages: tuple[str, ...], shell: Shell) -> None:
    for page in pages:
        follow(page, shell, last=page == pages[-1])
        shell.end_jobs()


def follow(page: str, shell: Shell, *, last: bool) -> None:
    """Write a page's files, type its commands, and compare what they print; only the last page stops what runs."""
    ports = {port: str(free_port()) for port in ("8000", "8080")}
    text = PORT.sub(lambda found: ports[found[0]], (TUTORIALS / page).read_text())
    text = re.sub(r"\bshop\b", RENAMED.get(page, "shop"), text.replace(MINUTE, "Deadline(15, "))
    steps = list(listings(text))
    assert any(isinstance(each, File) for each in steps)
    assert any(isinstance(each, Command) for each in steps)
    for step in steps:
        if isinstance(step, File):
            (shell.folder / step.name).write_text(step.text)
        else:
            printed = shell.type(shell.rest(step.line, last=last))
            assert step.is_printed_by(printed), f"{page}: $ {step.line}\n{printed}\ninstead of\n{step.printed}"


def test_what_a_page_prints_is_compared() -> None:
    (command,) = listings("```console\n$ say\none …\n…\nend\n```\n")
    assert isinstance(command, Command)
    assert command.is_printed_by("one 1\nend\n")
    assert command.is_printed_by("one 1\ntwo\nthree\nend\n")
    for wrong in ("", "one 1\n", "two\nend\n", "one 1\nend\nmore\n"):
        assert not command.is_printed_by(wrong), wrong


def test_every_tutorial_is_listed() -> None:
    assert set(re.findall(r"\]\(([^)]+\.md)\)", (TUTORIALS / "README.md").read_text())) == set(PAGES)
