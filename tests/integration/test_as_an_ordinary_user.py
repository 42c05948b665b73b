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
JUDGED = "integration/test_hostile_worktrees.py::test_what_a_command_committed_is_judged_as_a_patch_is_before_it_lands"
ELSEWHERE = ("gate", "patch", "compensation", "regression")
# Where the code asks whether it is root, or who owns a file.
FILES = (
    "integration/test_escapes.py",
    "integration/test_sandbox.py",
    "integration/test_hidden.py",
    "integration/test_strange_folder.py::test_a_home_from_before_is_tightened_when_it_starts",
    "integration/test_hostile_backups.py",
    "integration/test_strays.py",
    "integration/test_purging.py",
    "integration/test_hostile_worktrees.py",
    "integration/test_owner_role.py",
    "integration/test_root_accounts.py",
    "integration/test_secrets.py",
    "integration/test_fork_confinement.py::test_a_caller_confined_in_another_way_gets_no_fork",
    "chaos/test_chaos_journal.py",  # files that only root may open again
)
# What does not: four of the five ways to a command, which end in the same call as the fifth (whether a gate can be
# changed is asked by each of them); two commands that refuse a directory as the calls do that the rest of its module
# tries; how deep a directory may be (deep and closed ones are tried); how long a command may compute, a limit that is
# set with those of memory and files; the journal under SIGKILL at any moment, whose files are opened as those of a
# SIGKILL at each system call; which rule refuses a commit, once it is read (one example is left); what a login of the
# database may do. Of a whole installation, whose files are looked at in `test_hidden`, whose code it imports.
ALIKE = (
    *(f"integration/test_escapes.py::test_nothing_escapes_from_the_sandbox[{act}-sandbox]" for act in ELSEWHERE),
    *(f"integration/test_escapes.py::test_without_a_sandbox_it_is_as_the_table_says[{act}-none]" for act in ELSEWHERE),
    "integration/test_purging.py::test_a_directory_that_interlock_never_made_is_never_deleted_from_nor_put_into",
    "integration/test_hostile_worktrees.py::test_no_depth_of_directories_keeps_a_worktree_from_landing_or_being_archived",
    "integration/test_sandbox.py::test_processor_time_is_bounded",
    "chaos/test_chaos_journal.py::test_killed_at_any_moment_while_events_are_committed",
    *(f"{JUDGED}[files{number}-" for number in range(1, 9)),
    "integration/test_hostile_worktrees.py::test_random_commits_of_a_command_get_the_verdict_of_the_patch_that_does_the_same",
    "integration/test_owner_role.py::test_doctor_tells_a_login_with_all_rights_from_one_without",
    "integration/test_owner_role.py::test_doctor_sees_each_right_beyond_a_logins_part",
)
ROOTS_ONLY = ("only root",)


def test_it_holds_for_an_ordinary_user_too() -> None:
    """In one session, because each would make servers of its own."""
    if why := ordinary.refusal():
        pytest.skip(f"no namespaces for another user here: {why}")
    with open_directory() as top:
        who = ordinary.account()
        words = (*(f"tests/{each}" for each in FILES), *(f"--deselect=tests/{each}" for each in ALIKE))
        said = ordinary.pytest_as(who, words, top, SECONDS)
    last = said.strip().rpartition("\n")[2]
    assert re.search(r"\b[1-9]\d* passed", last), said
    assert not re.search(r"failed|error", last), said
    skipped = [line for line in said.splitlines() if line.startswith("SKIPPED")]
    assert [each for each in skipped if not any(reason in each for reason in ROOTS_ONLY)] == [], said
    eventually(lambda: not _processes_of(who.uid))
    assert f"{ordinary.NAME}:" not in Path("/etc/passwd").read_text()


def test_a_run_that_is_broken_off_leaves_nothing() -> None:
    if why := ordinary.refusal():
        pytest.skip(f"no namespaces for another user here: {why}")
    who = ordinary.account()
    with open_directory() as top, pytest.raises(subprocess.TimeoutExpired):
        ordinary.pytest_as(who, ("--noconftest", "tests/integration/hangs.py"), top, 4.0)
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
