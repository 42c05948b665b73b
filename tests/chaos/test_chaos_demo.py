"""`python -m demo`, whole: what it is to show happens, a worker killed in the middle included, and nothing is left."""

from pathlib import Path

import pytest

from demo.__main__ import SAMPLE
from interlock.supervisor import orphans
from interlock.supervisor.home import home_of
from interlock.supervisor.processes.loop import data_places
from interlock.workers.settings import Settings
from tests.cli.terminal import Terminal
from tests.homes import open_directory

PATIENCE_SECONDS = 400.0
FEW = 3  # of forty pull requests, where it is not about them


@pytest.mark.timeout(PATIENCE_SECONDS + 60)
def test_the_demo_shows_what_it_is_for_and_ends_well() -> None:
    out = _demo()
    for words in ("SIGKILL to worker process", "quarantined", "run again", "rolled back", "audit verify: ok"):
        assert words in out
    assert "not shown" not in out


@pytest.mark.timeout(PATIENCE_SECONDS + 60)
def test_without_git_the_demo_leaves_the_plans_out_and_says_so(tmp_path: Path) -> None:
    few = tmp_path / "pull_requests.jsonl"
    few.write_text("".join(SAMPLE.read_text().splitlines(keepends=True)[:FEW]))
    out = _demo("--file", str(few), PATH=str(tmp_path))
    for words in ("left out: patches need git", "audit verify: ok"):
        assert words in out


def _demo(*words: str, **environment: str) -> str:
    """What it printed; it ended well, and nothing of it runs any more."""
    with open_directory() as directory:
        here = Terminal(directory / "home").demo.set(**environment)
        with here.start(*words) as process:
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, out + err
        home = home_of(Settings(home=here.home / "demo"))
        assert not orphans.of_home(home, data_places(home))
    return out
