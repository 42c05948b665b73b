"""Rolls a committed patch back by its plan: it is tried beside the branch, which moves only if all of it succeeded.

A plan that fails leaves the repository as it was: refs, HEAD, index and files. The caller provides the means to run
tests and to send notices.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from interlock.workers.git import branches, revert
from interlock.workers.git.branches import BranchMoved
from interlock.workers.git.command import Git
from interlock.workers.git.git_directories import LockedWorktree
from interlock.workers.git.ref_names import safe
from interlock.workers.git.repository import Repository, find, hold
from interlock.workers.git.results import Refusal
from interlock.workers.git.revert import RevertOutcome
from interlock.workers.git.rollback_plan import CompensationPlan, Notify, RunTests
from interlock.workers.git.worktree import temporary
from interlock.workers.isolation.apart import OURSELVES, Isolation


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The caller's functions: each runs one check or action and returns its verdict. An exception is a fault."""

    run_tests: Callable[[Path, str], RevertOutcome]
    """Runs a test suite, by its name, in a working tree."""
    run_gate: Callable[[Path, str], RevertOutcome]
    """Runs a gate, by its type (LINT, UNIT, …), in a working tree."""
    notify: Callable[[Notify], RevertOutcome]


class ActionOutcome(NamedTuple):
    """The outcome of one action or validation."""

    action: str
    required: bool
    verdict: RevertOutcome


@dataclass(frozen=True, slots=True)
class Compensation:
    """The outcome of a plan. `sha`: the branch's new tip, if it moved (`already`: in an earlier call)."""

    success: bool
    actions: tuple[ActionOutcome, ...]
    error: str | None = None
    sha: str | None = None
    already: bool = False


def compensate(
    repository: Path,
    plan: CompensationPlan,
    ledger_id: str,
    callbacks: Callbacks,
    *,
    branch: str,
    scratch: Path,
    isolation: Isolation = OURSELVES,
) -> Compensation | Refusal:
    """Carry out a plan.

    Reverts, tests, gates and required notices come first, in a temporary worktree. Then the branch moves, by
    compare-and-swap. Then the other notices are sent, whose failure changes nothing. A retry finds the reverts by their
    trailers (`Interlock-Revert: <ledger id>`) and only sends these notices again.

    Args:
        repository: the user's checkout, or any worktree of it.
        plan: what to do.
        ledger_id: the ledger entry rolled back.
        callbacks: how tests, gates and notices are run.
        branch: the branch the patch is on; the plan's reverts must name the same.
        scratch: the parent directory of the temporary worktree.
        isolation: who tests and gates run as, and the sandbox for our git there.

    Raises:
        RepositoryBusy: another process holds the lock for too long. Try again.
        GitFault: git failed; the message says how. Repair that and try again.
    """
    found = find(repository)
    if isinstance(found, Refusal):
        return found
    git = found.git()
    if (old := branches.tip(git, branch)) is None or any(each.branch != branch for each in plan.reverts):
        return Refusal(f"there is no branch {branch}, or the plan reverts on another", "Correct the plan")
    work = _Rollback(git, plan, ledger_id, callbacks, branch, old)
    if plan.reverts and (sha := revert.found(git, plan.reverts, ledger_id, old)):
        return Compensation(True, work.notify_all(), sha=sha, already=True)
    reverted, sha, error = work.revert()
    if error:
        return Compensation(False, reverted, error)
    with temporary(found, sha, scratch / f"compensation-{safe(ledger_id)}", isolation) as there:
        proved, error = work.prove(there)
    if error or (sha != old and (error := work.land(sha))):
        return Compensation(False, reverted + proved, error)
    return Compensation(True, reverted + proved + work.notify_all(), sha=sha if sha != old else None)


@dataclass(frozen=True, slots=True)
class _Rollback:
    git: Git
    plan: CompensationPlan
    ledger_id: str
    callbacks: Callbacks
    branch: str
    old: str

    def revert(self) -> tuple[tuple[ActionOutcome, ...], str, str | None]:
        """All reverts, each on the one before; the last commit made; and the error, if any."""
        sha, done = self.old, list[ActionOutcome]()
        for action in self.plan.reverts:
            made = revert.revert(self.git, sha, action.commit_sha, self.ledger_id)
            done.append(ActionOutcome(f"git_revert {action.commit_sha}", action.required, made))
            if made.success:
                sha = made.message
            elif action.required:
                break
        _, error = _until_failure(iter(done))
        return tuple(done), sha, error

    def prove(self, there: LockedWorktree) -> tuple[tuple[ActionOutcome, ...], str | None]:
        """Run the steps that may still fail, in a temporary worktree; commits made there are dropped."""
        return _until_failure(self._proofs(there))

    def land(self, sha: str) -> str | None:
        """Move the branch; the reason if that was not possible."""
        with hold(Repository(self.git.directory)) as git:
            stopped = branches.move(git, self.branch, sha, self.old)
        if isinstance(stopped, BranchMoved):
            return f"{self.branch} moved from {self.old} to {stopped.now} meanwhile; try again"
        return str(stopped) if stopped else None

    def notify_all(self) -> tuple[ActionOutcome, ...]:
        """Send the notices that nothing depends on."""
        return tuple(self._notify(each) for each in self._notices(required=False))

    def _proofs(self, there: LockedWorktree) -> Iterator[ActionOutcome]:
        for action in self.plan.actions:
            if isinstance(action, RunTests):
                verdict = self.callbacks.run_tests(there.path, action.test_suite)
                yield ActionOutcome(f"run_tests {action.test_suite}", action.required, verdict)
        for gate in self.plan.validation.required_gates:
            yield ActionOutcome(f"gate {gate}", True, self.callbacks.run_gate(there.path, gate))
        if self.plan.validation.verify_clean_state:
            yield ActionOutcome("verify_clean_state", True, revert.clean(there))
        for notice in self._notices(required=True):
            yield self._notify(notice)

    def _notices(self, *, required: bool) -> Iterator[Notify]:
        return (each for each in self.plan.actions if isinstance(each, Notify) and each.required is required)

    def _notify(self, notice: Notify) -> ActionOutcome:
        return ActionOutcome(f"notify {', '.join(notice.channels)}", notice.required, self.callbacks.notify(notice))


def _until_failure(steps: Iterator[ActionOutcome]) -> tuple[tuple[ActionOutcome, ...], str | None]:
    """Take the steps, up to the first required one that fails; and the error of that one."""
    done: list[ActionOutcome] = []
    for outcome in steps:
        done.append(outcome)
        if outcome.required and not outcome.verdict.success:
            return tuple(done), f"Required action failed: {outcome.action}: {outcome.verdict.message}"
    return tuple(done), None
