"""A patch is applied whole or not at all, and committed once, however often the worker dies."""

from pathlib import Path

import pytest

from interlock.workers.git.apply import AppliedPatch, apply, commit
from interlock.workers.git.policy import Checked, PatchPolicy
from interlock.workers.git.results import Committed, Conflict, Refusal
from interlock.workers.git.trial_index import TRIES
from interlock.workers.git.worktree import Worktree, restore
from tests.repositories import diff, everything, git, make, opened, put

TEN = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n"


@pytest.fixture
def found(tmp_path: Path) -> Worktree:
    return opened(make(tmp_path / "repo"))


def land(found: Worktree, changed: dict[str, str | None], ledger_id: str = "L-0") -> str:
    """Apply and commit a patch."""
    assert isinstance(apply(found, diff(found.path, changed), ledger_id), AppliedPatch)
    done = commit(found, ledger_id, f"Patch {ledger_id}")
    assert isinstance(done, Committed)
    return done.sha


def state(found: Worktree) -> tuple[str, ...]:
    head, index = git(found.path, "rev-parse", "HEAD"), git(found.path, "ls-files", "--stage")
    files = [f"{each}={each.read_bytes()!r}" for each in sorted(found.path.rglob("*")) if each.is_file()]
    return head, index, git(found.path, "status", "--porcelain"), *files


def test_a_patch_is_applied_then_committed_as_it_was_verified(found: Worktree) -> None:
    wanted = {"app.py": TEN.replace("two", "2"), "docs/read me.txt": None, "new/dir/f.py": "x\r\ny", "bin": "\0\1"}
    patch = diff(found.path, wanted)
    done = apply(found, patch, "L-1", policy=PatchPolicy(allow_binary=True))
    assert isinstance(done, AppliedPatch)
    assert (done.way, set(done.paths)) == ("exact", set(wanted))
    put(found.path, {"app.py": "spoilt by a test\n", "report.xml": "left by a test"})
    committed = commit(found, "L-1", "Number two\n\nInterlock-Patch: L-9", also={"Interlock-Run": "r"})
    assert isinstance(committed, Committed)
    restore(found)
    assert (found.path / "app.py").read_text() == wanted["app.py"]
    assert (found.path / "new/dir/f.py").read_bytes() == b"x\r\ny"
    assert git(found.path, "log", "-1", "--format=%an %ce %(trailers:only,unfold)").split("\n") == [
        "Interlock interlock@localhost Interlock-Run: r",
        "Interlock-Patch: L-1",
        "",
        "",
    ]
    assert git(found.path, "log", "--format=%H", "main..HEAD").split() == [committed.sha]


def test_applying_and_committing_again_does_nothing_more(found: Worktree) -> None:
    patch = diff(found.path, {"app.py": "1\n"})
    assert apply(found, patch, "L-1") == AppliedPatch("exact", ("app.py",))
    assert apply(found, patch, "L-1") == AppliedPatch("already", ("app.py",))
    first = commit(found, "L-1", "m")
    assert isinstance(first, Committed)
    assert apply(found, patch, "L-1") == AppliedPatch("already", (), first.sha)
    assert commit(found, "L-1", "m") == Committed(first.sha, already=True)
    git(found.repository.directory.parent, "merge", "-q", found.branch)
    assert commit(found, "L-1", "m") == Committed(first.sha, already=True)


def test_a_forged_trailer_is_not_taken_for_a_commit(found: Worktree) -> None:
    git(found.path, "commit", "-q", "--allow-empty", "-m", "x\n\nInterlock-Patch: L-1\n\nSaid in the middle.")
    assert apply(found, diff(found.path, {"app.py": "1\n"}), "L-1") == AppliedPatch("exact", ("app.py",))


def test_a_conflict_names_its_file_and_changes_nothing(found: Worktree) -> None:
    patch = diff(found.path, {"app.py": TEN.replace("two", "2"), "other.py": "x\n"})
    land(found, {"app.py": TEN.replace("two", "zwei")})
    before = state(found)
    for tries in (TRIES, TRIES[:1], TRIES[2:]):
        failed = apply(found, patch, "L-1", tries=tries)
        assert isinstance(failed, Conflict)
        assert failed.files == ("app.py",)
        assert state(found) == before


def test_the_third_try_merges_what_the_first_two_cannot_place(found: Worktree) -> None:
    patch = diff(found.path, {"app.py": TEN.replace("five", "5")})
    land(found, {"app.py": TEN.replace("three", "3")})  # in the patch's context
    assert isinstance(apply(found, patch, "L-1", tries=TRIES[:2]), Conflict)
    done = apply(found, patch, "L-1")
    assert isinstance(done, AppliedPatch)
    assert done.way == "three_way"
    assert (found.path / "app.py").read_text() == TEN.replace("five", "5").replace("three", "3")


def test_the_second_try_overlooks_blanks(found: Worktree) -> None:
    patch = diff(found.path, {"app.py": TEN.replace("five", "5")})
    land(found, {"app.py": TEN.replace("three\n", "three\r\n")})
    done = apply(found, patch, "L-1", tries=TRIES[:2])
    assert isinstance(done, AppliedPatch)
    assert done.way == "whitespace"


def test_a_patch_that_is_there_already_is_a_conflict_not_an_empty_commit(found: Worktree) -> None:
    patch = diff(found.path, {"app.py": "1\n"})
    land(found, {"app.py": "1\n"})
    assert isinstance(apply(found, patch, "L-1"), Conflict)


def test_an_untracked_file_in_the_way_is_a_conflict_and_stays(found: Worktree) -> None:
    patch = diff(found.path, {"new.py": "x\n"})
    put(found.path, {"new.py": "precious\n"})
    before = state(found)
    failed = apply(found, patch, "L-1")
    assert isinstance(failed, Conflict)
    assert failed.files == ("new.py",)
    assert state(found) == before


def test_other_work_in_the_worktree_is_refused_and_stays(found: Worktree) -> None:
    patch = diff(found.path, {"app.py": "1\n"})
    put(found.path, {"docs/read me.txt": "by hand\n"})
    before = state(found)
    assert isinstance(apply(found, patch, "L-1"), Refusal)
    assert isinstance(commit(found, "L-1", "m"), Refusal)
    assert state(found) == before
    restore(found)
    assert isinstance(apply(found, patch, "L-1"), AppliedPatch)
    assert isinstance(apply(found, diff_of_another(), "L-2"), Refusal)


def diff_of_another() -> str:
    return "--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+b\n"


def test_a_link_out_of_the_tree_is_refused_even_when_the_text_hides_it(found: Worktree) -> None:
    (found.path / "inside").mkdir()
    (found.path / "inside" / "l").symlink_to("../app.py")
    git(found.path, "add", "-A")
    git(found.path, "commit", "-qm", "A link")
    before = state(found)
    hidden = "diff --git a/inside/l b/l\nsimilarity index 100%\nrename from inside/l\nrename to l\n"
    refused = apply(found, hidden, "L-1")
    assert isinstance(refused, Checked)
    assert (refused.format, refused.scope, refused.constraints) == (True, True, False)
    assert refused.reasons[0].rule == "symlink"
    through = "--- /dev/null\n+++ b/inside/l/x\n@@ -0,0 +1 @@\n+b\n"
    assert isinstance(apply(found, through, "L-2"), Checked)
    assert state(found) == before


@pytest.mark.parametrize(
    "patch", ["", "rubbish", "--- a/.git/config\n+++ b/.git/config\n@@ -1 +1 @@\n-[core]\n+[evil]\n"]
)
def test_bad_input_changes_nothing(found: Worktree, patch: str) -> None:
    before = (state(found), everything(found.repository.directory.parent))
    refused = apply(found, patch, "L-1")
    assert isinstance(refused, Checked)
    assert not refused.passed
    assert (state(found), everything(found.repository.directory.parent)) == before


def test_hooks_and_the_users_settings_have_no_say(
    found: Worktree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = found.repository.directory / "hooks"
    for name in ("pre-commit", "commit-msg", "post-checkout", "reference-transaction", "post-index-change"):
        put(hooks, {name: f"#!/bin/sh\ntouch {tmp_path}/ran\nexit 1\n"})
        (hooks / name).chmod(0o755)
    for name, value in {"GIT_DIR": "/nowhere", "GIT_INDEX_FILE": "/nowhere", "GIT_AUTHOR_NAME": "Mallory"}.items():
        monkeypatch.setenv(name, value)
    patch = "--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+b\n"
    assert isinstance(apply(found, patch, "L-1"), AppliedPatch)
    done = commit(found, "L-1", "m")
    assert isinstance(done, Committed)
    assert not (tmp_path / "ran").exists()


def test_a_worker_killed_while_git_wrote_files_is_made_good_by_the_retry(found: Worktree) -> None:
    patch = diff(found.path, {"app.py": "1\n" * 1000, "new/file": "new\n"})
    base = git(found.path, "rev-parse", "HEAD^{tree}").strip()
    assert isinstance(apply(found, patch, "L-1"), AppliedPatch)
    # As git leaves it: some files written, one begun, the index not yet replaced, its lock still there.
    git(found.path, "read-tree", base)
    put(found.path, {"app.py": "1\n" * 7})
    (found.path / ".git" / "index.lock").touch()
    assert isinstance(apply(found, patch, "L-1"), AppliedPatch)
    assert (found.path / "app.py").read_text() == "1\n" * 1000
    assert git(found.path, "diff", "--name-only") == ""
    assert isinstance(commit(found, "L-1", "m"), Committed)
    assert git(found.path, "status", "--porcelain") == ""
