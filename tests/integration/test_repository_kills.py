"""A worker is killed (SIGKILL) before each git command it would run; whoever retries gets to the same end."""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from interlock.workers.git import repository
from interlock.workers.git.apply import AppliedPatch, apply, commit
from interlock.workers.git.archive import ArchivedWorkstream, archive
from interlock.workers.git.merge import merge
from interlock.workers.git.ref_names import branch_name
from interlock.workers.git.results import Committed
from interlock.workers.git.revert import RevertOutcome
from interlock.workers.git.rollback import Callbacks, Compensation, compensate
from interlock.workers.git.rollback_plan import CompensationPlan
from interlock.workers.git.worktree import Worktree, close, restore
from tests.repositories import git, killing, make, opened

STRIDE = 6
PATCH = (
    "--- a/app.py\n+++ b/app.py\n@@ -1,2 +1,2 @@\n-one\n+1\n two\n--- /dev/null\n+++ b/new/f.py\n@@ -0,0 +1 @@\n+f\n"
)


def patch_and_merge(checkout: Path) -> None:
    """A patch's whole way, as effects take it step by step."""
    found = opened(checkout)
    assert isinstance(apply(found, PATCH, "L-1"), AppliedPatch)
    assert isinstance(commit(found, "L-1", "m"), Committed)
    restore(found)
    assert isinstance(merge(found, "m"), Committed)
    close(found)


def merged_once(checkout: Path) -> None:
    log = git(checkout, "log", "--format=%(trailers:only,unfold)", "main").split("\n")
    assert sorted(line for line in log if line) == ["Interlock-Patch: L-1", "Interlock-Workstream: interlock/r/w"]
    assert (checkout / "app.py").read_text().startswith("1\ntwo\n")
    assert git(checkout, "for-each-ref", "--format=%(refname)") == "refs/heads/main\n"


def fail_and_archive(checkout: Path) -> None:
    """A workstream that fails with a patch applied and not committed."""
    directory = checkout.parent / "archive"
    if not (directory / "reason.json").exists():  # the machine knows by then that the patch was applied
        assert isinstance(apply(opened(checkout), PATCH, "L-1"), AppliedPatch)
    assert isinstance(archive(_worktree(checkout), directory, {"why": "tests"}), ArchivedWorkstream)


def _worktree(checkout: Path) -> Worktree:
    found = repository.find(checkout)
    assert isinstance(found, repository.Repository)
    return Worktree(found, checkout.parent / "trees" / "w", branch_name("r", "w"), "main")


def archived_once(checkout: Path) -> None:
    refs = git(checkout, "for-each-ref", "--format=%(refname)").split()
    kept = [ref for ref in refs if ref.startswith("refs/interlock/archive/r/w/")]
    assert len(kept) == 1
    assert set(refs) == {"refs/heads/main", *kept}
    assert git(checkout, "show", f"{kept[0]}:new/f.py") == "f\n"


def roll_back(checkout: Path) -> None:
    """The user's last commit is rolled back."""
    sha = git(checkout, "log", "--format=%H", "--grep=Bad", "main").split()[-1]
    actions = [{"action": "git_revert", "commit_sha": sha, "branch": "main"}]
    plan = CompensationPlan.model_validate({"compensation_type": "git_revert", "actions": actions})
    means = Callbacks(*[lambda *_: RevertOutcome(True)] * 3)
    done = compensate(checkout, plan, "L-1", means, branch="main", scratch=checkout.parent / "scratch")
    assert isinstance(done, Compensation)
    assert done.success, done.error


def rolled_back_once(checkout: Path) -> None:
    assert git(checkout, "log", "--format=%s", "main").split("\n")[:2] == ['Revert "Bad"', "Bad"]
    assert not (checkout / "bad").exists()
    assert not any((checkout.parent / "scratch").glob("compensation*"))


WORKS: Mapping[str, tuple[Callable[[Path], None], Callable[[Path], None]]] = {
    "patch_and_merge": (patch_and_merge, merged_once),
    "fail_and_archive": (fail_and_archive, archived_once),
    "roll_back": (roll_back, rolled_back_once),
}
RUN = "import sys; from tests.integration.test_repository_kills import kill_everywhere; kill_everywhere(*sys.argv[1:])"


def kill_everywhere(name: str, root: str, first: str) -> None:
    """Do the work in repository after repository, killed before ever later git commands, and at last not at all."""
    work, killed, at = WORKS[name][0], True, int(first) - STRIDE
    while killed:
        at += STRIDE
        checkout = Path(root) / str(at) / "repo"
        shutil.copytree(Path(root) / "template", checkout)
        child = os.fork()  # this process has one thread
        if not child:
            _do(work, checkout, at)
        killed = os.waitpid(child, 0)[1] == signal.SIGKILL
    print(at)


def _do(work: Callable[[Path], None], checkout: Path, at: int) -> None:
    os.environ["PATH"] = killing(checkout.parent / "bin", at)
    work(checkout)
    os._exit(0)


@pytest.mark.parametrize("name", WORKS)
def test_a_retry_after_a_kill_at_any_git_command_gets_to_the_same_end(tmp_path: Path, name: str) -> None:
    work, ended = WORKS[name]
    template = make(tmp_path / "template")
    (template / "bad").touch()
    git(template, "add", "-A")
    git(template, "commit", "-qm", "Bad")
    first = random.randint(1, STRIDE)  # no command is spared for ever
    killing = [sys.executable, "-c", RUN, name, str(tmp_path), str(first)]
    run = subprocess.run(killing, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 10
    for at in range(first, int(run.stdout) + 1, STRIDE):
        checkout = tmp_path / str(at) / "repo"
        work(checkout)
        ended(checkout)
        assert git(checkout, "status", "--porcelain") == ""
        assert len(git(checkout, "worktree", "list").splitlines()) == 1
