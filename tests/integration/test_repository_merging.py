"""Completed workstreams merge one after the other; none is lost, and nothing of the user's is."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from interlock.workers.git import branches, repository, state_files
from interlock.workers.git.command import Git
from interlock.workers.git.lock import RepositoryBusy
from interlock.workers.git.merge import merge
from interlock.workers.git.results import Committed, Conflict, Refusal
from interlock.workers.git.worktree import Worktree, close, import_commits
from tests.repositories import everything, git, make, opened, put
from tests.waiting import eventually

MERGE = """
import os, sys
from pathlib import Path
from tests.repositories import opened
from interlock.workers.git.merge import merge
start, go = os.pipe()
for name in sys.argv[2:]:
    if os.fork() == 0:
        os.close(go)
        os.read(start, 1)  # until all are there
        print(merge(opened(Path(sys.argv[1]), name), "Merge " + name), flush=True)
        os._exit(0)
os.close(go)
for _ in sys.argv[2:]:
    os.wait()
"""
HOLD = """
import sys
from pathlib import Path
from interlock.workers.git import repository
with repository.hold(repository.find(Path(sys.argv[1]))):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make(tmp_path / "repo")


def worked(checkout: Path, name: str = "w", **files: str) -> Worktree:
    """A workstream with one commit."""
    found = opened(checkout, name)
    put(found.path, {each.replace("_", "."): content for each, content in (files or {name: name}).items()})
    git(found.path, "add", "-A")
    git(found.path, "commit", "-qm", f"Work of {name}")
    assert import_commits(found) is None
    return found


def merged(found: Worktree) -> Committed:
    done = merge(found, f"Merge {found.branch}")
    assert isinstance(done, Committed), done
    return done


def elsewhere(checkout: Path) -> None:
    git(checkout, "switch", "-qc", "mine")
    put(checkout, {"app.py": "precious\n"})


def test_a_branch_that_is_not_checked_out_moves_and_no_file_does(checkout: Path) -> None:
    found = worked(checkout)
    elsewhere(checkout)
    before = everything(checkout)
    done = merged(found)
    after = everything(checkout)
    assert {key for key in before if before[key] != after[key]} == {"refs"}
    assert git(checkout, "rev-parse", "main").strip() == done.sha
    assert git(checkout, "log", "-1", "--format=%P %an", "main").split(" ", 1)[0] != ""
    assert len(git(checkout, "log", "-1", "--format=%P", "main").split()) == 2
    assert git(checkout, "show", "main:w") == "w"


def test_a_clean_checkout_of_the_base_goes_along(checkout: Path) -> None:
    found = worked(checkout)
    put(checkout, {"untracked": "precious"})
    merged(found)
    assert (checkout / "w").read_text() == "w"
    assert git(checkout, "status", "--porcelain") == "?? untracked\n"


@pytest.mark.parametrize("staged", [True, False])
def test_a_dirty_checkout_of_the_base_is_refused_with_what_to_do(checkout: Path, staged: bool) -> None:
    found = worked(checkout)
    put(checkout, {"app.py": "precious\n"})
    if staged:
        git(checkout, "add", "-A")
    before = everything(checkout)
    refused = merge(found, "m")
    assert isinstance(refused, Refusal)
    assert "app.py" in refused.reason
    assert "stash" in refused.remedy
    assert everything(checkout) == before


def test_an_untracked_file_in_the_way_is_refused_and_stays(checkout: Path) -> None:
    found = worked(checkout)
    put(checkout, {"w": "precious"})
    before = everything(checkout)
    assert isinstance(merge(found, "m"), Refusal)
    assert everything(checkout) == before


def test_a_conflict_names_its_files_and_changes_nothing(checkout: Path) -> None:
    first, second = worked(checkout, "a", app_py="a\n", x="a"), worked(checkout, "b", app_py="b\n", y="b")
    merged(first)
    before = everything(checkout)
    failed = merge(second, "m")
    assert isinstance(failed, Conflict)
    assert failed.files == ("app.py",)
    assert "CONFLICT" in failed.message
    assert everything(checkout) == before


def test_merging_again_finds_the_merge_even_when_the_branch_is_gone(checkout: Path) -> None:
    found = worked(checkout)
    done = merged(found)
    merged(worked(checkout, "later"))
    assert merged(found) == Committed(done.sha, already=True)
    close(found)
    assert merged(found) == Committed(done.sha, already=True)


def test_a_branch_without_work_has_nothing_to_merge(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "main").strip()
    assert merged(opened(checkout)) == Committed(head, already=True)
    never = Worktree(opened(checkout).repository, checkout.parent / "x", "interlock/r/never", "main")
    assert isinstance(merge(never, "m"), Refusal)


def test_four_processes_merge_four_branches_and_none_is_lost(checkout: Path) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        worked(checkout, name)
    done = subprocess.run(
        [sys.executable, "-c", MERGE, checkout, *names], stdout=subprocess.PIPE, text=True, check=True
    )
    said = done.stdout.splitlines()
    assert [each.startswith("Committed(") for each in said] == [True] * 4, said
    assert len(git(checkout, "log", "--first-parent", "--merges", "--format=%H", "main").split()) == 4
    assert git(checkout, "status", "--porcelain") == ""
    assert all((checkout / name).read_text() == name for name in names)


def test_who_waits_too_long_is_told_the_holders_pid_and_the_lock_dies_with_it(checkout: Path) -> None:
    found = worked(checkout)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, checkout], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(RepositoryBusy, match=f"pid {holder.pid}"):
        merge(found, "m", lock_seconds=0.1)
    holder.kill()
    holder.communicate()
    assert merged(found)


def test_git_that_outlives_its_worker_keeps_the_lock(checkout: Path) -> None:
    found = repository.find(checkout)
    assert isinstance(found, repository.Repository)
    with repository.hold(found) as there:
        there.run("-c", f"alias.has=!test -e /dev/fd/{there.keep[0]}", "has")
        # As `git` would be after its worker's SIGKILL: running, with the descriptor, and without us.
        orphan = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=there.keep)
    with pytest.raises(RepositoryBusy), repository.hold(found, timeout_seconds=0.1):
        pass
    orphan.communicate()
    with eventually(lambda: repository.hold(found, timeout_seconds=1)):
        pass


def half_moved(checkout: Path, found: Worktree) -> None:
    """As a git killed in the middle of the fast-forward leaves the user's checkout."""
    old, directory = git(checkout, "rev-parse", "main").strip(), found.repository.directory
    git(found.path, "merge", "-q", "--no-ff", "-m", "m", "main")
    new = git(found.path, "rev-parse", "HEAD").strip()
    git(checkout, "fetch", "-q", str(found.path), "HEAD")
    intent = {"path": str(checkout), "branch": "main", "old": old, "new": new}
    state_files.write(directory / branches.MOVING, intent)
    put(checkout, {"app.py": "o", "fresh": "fre"})
    lock = directory / "index.lock"
    lock.touch()
    os.utime(lock, (time.time() - 3600,) * 2)


def test_a_fast_forward_killed_half_way_is_done_again(checkout: Path) -> None:
    found = worked(checkout, "w", app_py="other\n", fresh="fresh\n")
    half_moved(checkout, found)
    merged(found)
    assert git(checkout, "status", "--porcelain") == ""
    assert ((checkout / "app.py").read_text(), (checkout / "fresh").read_text()) == ("other\n", "fresh\n")


def test_what_the_user_wrote_after_the_kill_is_not_taken_back(checkout: Path) -> None:
    found = worked(checkout, "w", app_py="other\n", fresh="fresh\n")
    half_moved(checkout, found)
    put(checkout, {"app.py": "precious\n"})
    assert isinstance(merge(found, "m"), Refusal)
    assert (checkout / "app.py").read_text() == "precious\n"


def test_a_lock_file_left_by_a_killed_git_is_cleared_once_it_is_old(checkout: Path) -> None:
    found = worked(checkout)
    elsewhere(checkout)
    lock = found.repository.directory / "refs" / "heads" / "main.lock"
    lock.touch()
    os.utime(lock, (time.time() - 3600,) * 2)
    merged(found)
    assert not lock.exists()


def test_a_base_moved_by_the_user_meanwhile_is_merged_with(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = worked(checkout)
    move, raced = branches.move, list[str]()

    def move_late(there: Git, branch: str, new: str, old: str) -> object:
        if not raced:
            raced.append(old)
            git(checkout, "commit", "-q", "--allow-empty", "-m", "The user's own")
        return move(there, branch, new, old)

    monkeypatch.setattr(branches, "move", move_late)
    merged(found)
    assert "The user's own" in git(checkout, "log", "--format=%s", "main")
    assert (checkout / "w").exists()
