"""What differs between root and other users is tried as both: where root runs the tests, here as somebody else."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests import ordinary
from tests.homes import open_directory
from tests.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="every test runs as an ordinary user already"),
]
SECONDS = 800.0
# Where the code asks whether it is root, or who owns a file; but for the two slowest ways to run a command.
GROUPS = {
    "what is run": (
        "integration/test_escapes.py",
        "integration/test_sandbox.py",
        "-k",
        "not compensation and not regression",
    ),
    "what is started": (
        "integration/test_hidden.py",
        "integration/test_strange_folder.py",
        "integration/test_hostile_backups.py",
        "integration/test_strays.py",
        "integration/test_purging.py",
    ),
    "who owns it": (
        "integration/test_hostile_worktrees.py",
        "integration/test_owner_role.py",
        "integration/test_root_accounts.py",
        "integration/test_secrets.py",
        "chaos/test_chaos_journal.py",  # files that only root may open again
    ),
}
ROOTS_ONLY = ("only root",)


@pytest.mark.parametrize("words", GROUPS.values(), ids=GROUPS.keys())
def test_it_holds_for_an_ordinary_user_too(words: tuple[str, ...]) -> None:
    if why := ordinary.refusal():
        pytest.skip(f"no namespaces for another user here: {why}")
    passwd = Path("/etc/passwd").read_bytes()
    with open_directory() as top:
        who = ordinary.account()
        named = tuple(f"tests/{each}" if each.endswith(".py") else each for each in words)
        said = ordinary.pytest_as(who, named, top, SECONDS)
    last = said.strip().rpartition("\n")[2]
    assert re.search(r"\b[1-9]\d* passed", last), said
    assert not re.search(r"failed|error", last), said
    skipped = [line for line in said.splitlines() if line.startswith("SKIPPED")]
    assert [each for each in skipped if not any(reason in each for reason in ROOTS_ONLY)] == [], said
    eventually(lambda: not _processes_of(who.uid))
    assert Path("/etc/passwd").read_bytes() == passwd


def test_a_run_that_is_broken_off_leaves_nothing() -> None:
    if why := ordinary.refusal():
        pytest.skip(f"no namespaces for another user here: {why}")
    who = ordinary.account()
    with open_directory() as top, pytest.raises(subprocess.TimeoutExpired):
        ordinary.pytest_as(who, ("tests/integration/test_owner_role.py",), top, 4.0)
    eventually(lambda: not _processes_of(who.uid))
    assert not top.exists()


def _processes_of(uid: int) -> list[str]:
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if each.stat().st_uid == uid:
                found.append((each / "cmdline").read_text())
        except OSError:
            continue
    return found
