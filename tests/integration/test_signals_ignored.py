"""Tests that send signals work where the session inherited them ignored, as `nohup` and `&` leave them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.integration

HEARS = """
import os, signal, subprocess, sys
import pytest

def test_it_hears_them() -> None:
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)

@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT", "SIGHUP", "SIGTERM"])
def test_so_does_what_it_starts(name: str) -> None:
    program = f"import os, signal; os.kill(os.getpid(), signal.{name}); signal.pause()"
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL, timeout=20)
    assert done.returncode == -getattr(signal, name)
"""


@pytest.mark.timeout(120)
def test_a_session_that_inherits_signals_ignored_hears_them(tmp_path: Path) -> None:
    (tmp_path / "test_hears.py").write_text(HEARS)
    words = ["-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", "-p", "no:cacheprovider"]
    deaf = ["sh", "-c", "trap '' INT QUIT HUP TERM; exec \"$@\"", "sh", sys.executable, *words, str(tmp_path)]
    done = subprocess.run(deaf, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout
