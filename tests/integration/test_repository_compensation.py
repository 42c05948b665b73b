"""A rollback happens whole, or leaves refs, HEAD, index and files exactly as they were."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from interlock.workers.git.results import Refusal
from interlock.workers.git.revert import RevertOutcome
from interlock.workers.git.rollback import Callbacks, Compensation, compensate
from interlock.workers.git.rollback_plan import CompensationPlan, Notify
from tests.repositories import everything, git, make, put


class World:
    """A checkout with a bad commit, and means that succeed unless told otherwise."""

    def __init__(self, path: Path) -> None:
        self.checkout = make(path / "repo")
        self.scratch = path / "scratch"
        self.bad = self.commit("app.py", "bad\n")
        self.commit("later", "fine\n")
        self.ran: list[str] = []
        self.failing: set[str] = set()
        self.during: Callable[[Path], object] = lambda tree: None

    def commit(self, name: str, content: str) -> str:
        put(self.checkout, {name: content})
        git(self.checkout, "add", "-A")
        git(self.checkout, "commit", "-qm", f"Change {name}")
        return git(self.checkout, "rev-parse", "HEAD").strip()

    def plan(self, **changed: Any) -> CompensationPlan:
        """A plan with every action (PATCH-12)."""
        said = {
            "compensation_type": "git_revert",
            "actions": [
                {"action": "git_revert", "commit_sha": self.bad[:12], "branch": "main"},
                {"action": "run_tests", "test_suite": "regression", "required": True},
                {"action": "notify", "channels": ["slack", "email"], "recipients": ["dev-team"]},
            ],
            "validation": {"required_gates": ["LINT", "UNIT"], "verify_clean_state": True},
        }
        return CompensationPlan.model_validate(said | changed)

    def run(self, plan: CompensationPlan | None = None) -> Compensation:
        means = Callbacks(run_tests=self._run, run_gate=self._run, notify=self._notify)
        done = compensate(self.checkout, plan or self.plan(), "L-1", means, branch="main", scratch=self.scratch)
        assert isinstance(done, Compensation), done
        return done

    def _run(self, tree: Path, name: str) -> RevertOutcome:
        assert (tree / "app.py").read_text().startswith("one\n"), "tests must see the reverted tree"
        put(tree, {"__pycache__/x.pyc": "left by tests"})
        self.during(tree)
        self.ran.append(name)
        return RevertOutcome(name not in self.failing, f"{name} ran")

    def _notify(self, notice: Notify) -> RevertOutcome:
        self.ran.append("notify")
        return RevertOutcome("notify" not in self.failing)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_rollback_reverts_proves_and_moves_the_branch(world: World) -> None:
    done = world.run()
    assert done.success
    assert done.sha == git(world.checkout, "rev-parse", "main").strip()
    assert world.ran == ["regression", "LINT", "UNIT", "notify"]
    assert [each.action.split()[0] for each in done.actions] == [
        "git_revert", "run_tests", "gate", "gate", "verify_clean_state", "notify"
    ]  # fmt: skip
    assert (world.checkout / "app.py").read_text().startswith("one\n")
    assert git(world.checkout, "status", "--porcelain") == ""
    assert not any(world.scratch.iterdir())
    assert "Interlock-Revert: L-1" in git(world.checkout, "log", "-1", "--format=%B")


def test_a_retry_finds_the_revert_and_makes_no_second(world: World) -> None:
    first = world.run()
    head = git(world.checkout, "rev-parse", "main")
    again = world.run()
    assert (again.success, again.already, again.sha) == (True, True, first.sha)
    assert git(world.checkout, "rev-parse", "main") == head


@pytest.mark.parametrize("failing", ["regression", "LINT", "UNIT"])
def test_a_failing_proof_leaves_everything_as_it_was(world: World, failing: str) -> None:
    put(world.checkout, {"app.py": "the user's own\n"})
    before = everything(world.checkout)
    world.failing = {failing}
    done = world.run()
    assert not done.success
    assert failing in str(done.error)
    assert done.actions[-1].verdict.message == f"{failing} ran"
    assert "notify" not in world.ran
    assert everything(world.checkout) == before
    assert not any(world.scratch.iterdir())


def test_a_revert_in_conflict_leaves_everything_as_it_was(world: World) -> None:
    world.commit("app.py", "changed since\n")
    before = everything(world.checkout)
    done = world.run()
    assert (done.success, world.ran) == (False, [])
    assert "app.py" in str(done.error)
    assert everything(world.checkout) == before


def test_a_tree_that_tests_change_is_not_clean(world: World) -> None:
    world.during = lambda tree: put(tree, {"later": "scribbled\n"})
    before = everything(world.checkout)
    assert "later" in str(world.run().error)
    assert everything(world.checkout) == before


def test_a_required_notice_must_go_out_before_the_branch_moves(world: World) -> None:
    world.failing = {"notify"}
    revert, tests, notice = (each.model_dump() for each in world.plan().actions)
    before = everything(world.checkout)
    assert not world.run(world.plan(actions=[revert, tests, notice | {"required": True}])).success
    assert everything(world.checkout) == before
    done = world.run()
    assert done.success  # the optional one may fail
    assert not done.actions[-1].verdict.success


def test_a_dirty_checkout_stops_the_branch_and_keeps_its_files(world: World) -> None:
    put(world.checkout, {"app.py": "precious\n"})
    before = everything(world.checkout)
    done = world.run()
    assert not done.success
    assert "uncommitted" in str(done.error)
    assert everything(world.checkout) == before


def test_a_branch_that_moved_meanwhile_is_left_where_it_went(world: World) -> None:
    world.during = lambda tree: world.ran or world.commit("newer", "work\n")
    done = world.run()
    assert not done.success
    assert "moved" in str(done.error)
    assert (world.checkout / "newer").exists()
    assert world.run().success


def test_a_fault_in_the_callers_means_leaves_everything_as_it_was(world: World) -> None:
    def explode(tree: Path) -> None:
        raise OSError("the machine is on fire")

    world.during = explode
    before = everything(world.checkout)
    with pytest.raises(OSError, match="fire"):
        world.run()
    assert everything(world.checkout) == before
    world.during = lambda tree: None
    assert world.run().success


def test_what_a_killed_rollback_left_is_replaced(world: World) -> None:
    git(world.checkout, "worktree", "add", "-q", "--detach", str(world.scratch / "compensation-l-1-0"))
    left = world.scratch / "compensation-L-1"
    git(world.checkout, "worktree", "add", "-q", "--detach", str(left))
    (Path(git(left, "rev-parse", "--git-dir").strip()) / "index.lock").touch()
    assert world.run().success


def test_a_merge_is_reverted_against_the_branch_it_went_into(world: World) -> None:
    git(world.checkout, "switch", "-qc", "side", "HEAD~2")
    world.commit("side", "x")
    git(world.checkout, "switch", "-q", "main")
    git(world.checkout, "merge", "-q", "--no-edit", "side")
    merge = git(world.checkout, "rev-parse", "HEAD").strip()
    actions = [{"action": "git_revert", "commit_sha": each, "branch": "main"} for each in (merge, world.bad)]
    assert world.run(world.plan(actions=actions)).success
    assert not (world.checkout / "side").exists()


def test_a_commit_of_another_branch_cannot_be_reverted(world: World) -> None:
    git(world.checkout, "switch", "-qc", "side")
    other = world.commit("x", "x")
    git(world.checkout, "switch", "-q", "main")
    done = world.run(world.plan(actions=[{"action": "git_revert", "commit_sha": other, "branch": "main"}]))
    assert "not a commit of this branch" in str(done.error)


@pytest.mark.parametrize(
    "changed",
    [
        {"compensation_type": "undo"},
        {"compensation_type": "skip"},
        {"actions": []},
        {"actions": [{"action": "git_revert", "commit_sha": "--all", "branch": "main"}]},
        {"actions": [{"action": "git_revert", "commit_sha": "abc123def456", "branch": "-f"}]},
        {"actions": [{"action": "git_revert", "commit_sha": "abc123def456", "branch": b} for b in ("main", "next")]},
        {"actions": [{"action": "reboot"}]},
        {"surprise": 1},
    ],
)
def test_a_plan_says_only_what_a_plan_can_say(world: World, changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        world.plan(**changed)


def test_nothing_to_revert_proves_the_branch_as_it_is(world: World) -> None:
    before = everything(world.checkout)
    done = world.run(world.plan(compensation_type="skip", actions=[], validation={}))
    assert (done.success, done.sha, done.actions) == (True, None, ())
    assert everything(world.checkout) == before


def test_a_plan_for_another_branch_is_refused(world: World) -> None:
    means = Callbacks(run_tests=world._run, run_gate=world._run, notify=world._notify)
    refused = compensate(world.checkout, world.plan(), "L-1", means, branch="next", scratch=world.scratch)
    assert isinstance(refused, Refusal)
