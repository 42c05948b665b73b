"""A workstream's worktree: opened twice it is one, half-made it is mended; the user's own checkout is left alone."""

import json
import os
import shutil
from pathlib import Path

import pytest

from interlock.workers.git import repository as place
from interlock.workers.git import state_files
from interlock.workers.git.archive import ArchivedWorkstream, archive
from interlock.workers.git.command import GitFault
from interlock.workers.git.git_directories import RECORD, own_directory
from interlock.workers.git.results import Refusal
from interlock.workers.git.worktree import NotAWorktree, Worktree, close, discard, follow, open_worktree, restore
from tests.repositories import before_git, everything, git, make, opened, put


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make(tmp_path / "repo")


def test_a_dirty_checkout_is_no_obstacle_and_stays_as_it_is(checkout: Path) -> None:
    put(checkout, {"app.py": "mine\n", "new": "mine\n"})
    git(checkout, "add", "new")
    before = everything(checkout)
    found = opened(checkout)
    assert (found.path / "app.py").read_text().startswith("one\n")
    close(found)
    assert everything(checkout) == before


def test_opening_again_finds_the_same_worktree_with_its_work(checkout: Path) -> None:
    found = opened(checkout)
    put(found.path, {"app.py": "in progress\n"})
    assert opened(checkout) == found
    assert (found.path / "app.py").read_text() == "in progress\n"


def test_files_that_were_only_touched_go_with_their_branch(checkout: Path) -> None:
    found = opened(checkout)
    os.utime(found.path / "app.py", (1, 1))
    put(checkout, {"app.py": "newer\n"})
    git(checkout, "commit", "-qam", "Newer")
    git(checkout, "update-ref", f"refs/heads/{found.branch}", "main")
    follow(found)
    assert (found.path / "app.py").read_text() == "newer\n"


def test_a_worktree_opened_from_another_checkout_of_the_user_is_the_same(checkout: Path, tmp_path: Path) -> None:
    first = opened(checkout)
    git(checkout, "worktree", "add", "-q", "--detach", str(tmp_path / "another"))
    again = open_worktree(tmp_path / "another", "main", first.branch, first.path)
    assert again == first


def without_record(found: Worktree) -> None:
    """Killed before it wrote down what it makes."""
    shutil.rmtree(found.path)
    (own_directory(found.path) / RECORD).unlink()


def unfinished(found: Worktree) -> None:
    """Killed while git wrote the files."""
    record = state_files.read(own_directory(found.path) / RECORD)
    assert record
    state_files.write(own_directory(found.path) / RECORD, record | {"whole": False})
    (found.path / ".git" / "index").rename(found.path / ".git" / "index.lock")
    (found.path / "app.py").unlink()


def vanished(found: Worktree) -> None:
    shutil.rmtree(found.path)


def half_removed(found: Worktree) -> None:
    """Killed while it removed the worktree."""
    shutil.rmtree(found.path)
    (own_directory(found.path) / "config").unlink()


@pytest.mark.parametrize("killed", [without_record, unfinished, vanished, half_removed])
def test_what_a_killed_process_leaves_is_mended(checkout: Path, killed: object) -> None:
    found = opened(checkout)
    assert callable(killed)
    killed(found)
    assert opened(checkout) == found
    assert git(found.path, "status", "--porcelain") == ""
    close(found)
    assert not list(found.path.parent.iterdir())
    assert git(checkout, "worktree", "list").count("\n") == 1


@pytest.mark.parametrize("case", ["missing", "plain", "bare", "unborn", "base", "name", "path", "taken"])
def test_what_cannot_be_opened_is_refused_with_what_to_do(checkout: Path, tmp_path: Path, case: str) -> None:
    repository, base, branch, path = checkout, "main", "interlock/r/w", tmp_path / "trees" / "w"
    if case == "missing":
        repository = tmp_path / "nowhere"
    elif case == "plain":
        (repository := tmp_path / "plain").mkdir()
    elif case == "bare":
        git(tmp_path, "clone", "-q", "--bare", str(checkout), "bare")
        repository = tmp_path / "bare"
    elif case == "unborn":
        git(tmp_path, "init", "-q", "-b", "main", "unborn")
        repository = tmp_path / "unborn"
    elif case == "base":
        base = "mian"
    elif case == "name":
        branch = "-x..y"
    elif case == "path":
        put(tmp_path, {"trees/w/precious": "data"})
    elif case == "taken":
        git(checkout, "switch", "-qc", branch)
    refused = open_worktree(repository, base, branch, path)
    assert isinstance(refused, Refusal)
    said = {"missing": "not exist", "plain": "not a git", "unborn": "commit", "base": "mian", "name": "-x..y"} | {
        "path": "not this worktree's",
        "taken": "checked out",
    }
    assert said.get(case, case) in refused.reason
    assert refused.remedy
    assert case != "path" or (path / "precious").exists()


def test_the_users_own_checkout_is_never_taken_for_a_worktree(checkout: Path) -> None:
    found = opened(checkout)
    put(checkout, {"app.py": "precious\n", "untracked": "precious\n"})
    before = everything(checkout)
    for path in (checkout, checkout / "docs", checkout.parent):
        lost = Worktree(found.repository, path, "interlock/r/other", "main")
        with pytest.raises(NotAWorktree):
            restore(lost)
        close(lost)
        assert isinstance(archive(lost, checkout.parent / "archive", {}), Refusal)
    with pytest.raises(NotAWorktree):
        Worktree(found.repository, checkout, "main", "main")
    with place.hold(found.repository) as there, pytest.raises(NotAWorktree):
        discard(there, checkout)
    assert everything(checkout) == before


def test_the_users_own_worktree_is_refused_and_stays(checkout: Path, tmp_path: Path) -> None:
    git(checkout, "worktree", "add", "-q", "-b", "mine", str(tmp_path / "theirs"))
    put(tmp_path / "theirs", {"precious": "data"})
    assert isinstance(open_worktree(checkout, "main", "interlock/r/w", tmp_path / "theirs"), Refusal)
    close(Worktree(opened(checkout).repository, tmp_path / "theirs", "interlock/r/other", "main"))
    assert (tmp_path / "theirs" / "precious").read_text() == "data"


def test_restoring_removes_what_tests_left_and_nothing_outside(checkout: Path, tmp_path: Path) -> None:
    found = opened(checkout)
    put(tmp_path / "outside", {"precious": "data"})
    put(found.path, {"app.py": "broken\n", "left/over": "x", ".gitignore": "cache\n", "cache/x": "x"})
    (found.path / "link").symlink_to(tmp_path / "outside")
    git(found.path, "add", "app.py")
    (found.path / ".git" / "index.lock").touch()
    restore(found)
    assert git(found.path, "status", "--porcelain") == ""
    assert sorted(each.name for each in found.path.iterdir()) == [".git", "app.py", "docs"]
    assert (tmp_path / "outside" / "precious").read_text() == "data"


def test_a_closed_worktrees_branch_stays_until_it_is_merged(checkout: Path) -> None:
    found = opened(checkout)
    git(found.path, "commit", "-q", "--allow-empty", "-m", "work")
    close(found)
    close(found)
    assert not found.path.exists()
    assert found.branch in git(checkout, "branch", "--list", "interlock/*")
    git(checkout, "merge", "-q", found.branch)
    close(found)
    assert git(checkout, "branch", "--list", "interlock/*") == ""


def test_a_failed_workstream_is_kept_whole_and_archived_once(checkout: Path, tmp_path: Path) -> None:
    found = opened(checkout)
    put(found.path, {"app.py": "committed\n"})
    git(found.path, "commit", "-qam", "work")
    put(found.path, {"app.py": "not committed\n", "untracked": "evidence\n"})
    kept = archive(found, tmp_path / "archive" / "w", {"task": "T-1", "error": "exit 1"})
    assert isinstance(kept, ArchivedWorkstream)
    assert archive(found, tmp_path / "archive" / "w", {"task": "T-1"}) == kept
    assert not found.path.exists()
    assert git(checkout, "branch", "--list", "interlock/*") == ""
    assert git(checkout, "show", f"{kept.ref}:untracked") == "evidence\n"
    assert git(checkout, "show", f"{kept.ref}^:app.py") == "committed\n"
    assert json.loads(kept.reason.read_text())["reason"]["task"] == "T-1"
    git(checkout, "update-ref", "-d", kept.ref)
    git(checkout, "fetch", "-q", str(kept.bundle), "+refs/*:refs/*")
    assert git(checkout, "show", f"{kept.ref}:app.py") == "not committed\n"


@pytest.mark.parametrize("command", ["add", "unpack-objects"])
@pytest.mark.parametrize("ends", ["kill -9 $$", "echo 'fatal: x: No space left on device' >&2; exit 128"])
def test_files_that_git_could_not_store_now_are_archived_by_the_next_try(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, ends: str
) -> None:
    found = opened(checkout)
    put(found.path, {"app.py": "not committed\n"})
    with monkeypatch.context() as failing:
        script = f'case " $* " in *" {command} "*) {ends};; esac'
        failing.setenv("PATH", before_git(tmp_path / "bin", script))
        with pytest.raises(GitFault, match=f"git {command} "):
            archive(found, tmp_path / "archive", {})
    assert (found.path / "app.py").read_text() == "not committed\n"
    kept = archive(found, tmp_path / "archive", {})
    assert isinstance(kept, ArchivedWorkstream)
    assert git(checkout, "show", f"{kept.ref}:app.py") == "not committed\n"


def test_what_git_cannot_add_is_named_in_the_reason(checkout: Path, tmp_path: Path) -> None:
    found = opened(checkout)
    put(found.path, {"app.py": "not committed\n"})
    git(found.path, "init", "-q", "nested")
    kept = archive(found, tmp_path / "archive", {})
    assert isinstance(kept, ArchivedWorkstream)
    assert git(checkout, "show", f"{kept.ref}:app.py") == "not committed\n"
    assert "'nested/'" in json.loads(kept.reason.read_text())["reason"]["files_not_kept"]


def test_archiving_what_was_never_there_is_refused(checkout: Path, tmp_path: Path) -> None:
    found = opened(checkout)
    close(found)
    assert isinstance(archive(found, tmp_path / "archive", {}), Refusal)
