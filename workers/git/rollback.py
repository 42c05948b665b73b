"""Roll a committed patch back by its plan: tried beside the branch first, and the branch moves only if all of it held.

A plan that fails leaves the repository as it was: refs, HEAD, index and files. What a test suite or a notice is, the
caller says.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from workers.repository import branches, place, reverting
from workers.repository.branches import Moved
from workers.repository.git import Git, Identity
from workers.repository.naming import safe
from workers.repository.outcomes import Refusal
from workers.repository.plan import CompensationPlan, Notify, RunTests
from workers.repository.reverting import Verdict
from workers.repository.worktree import temporary


@dataclass(frozen=True, slots=True)
class Means:
    """What the caller lends: each runs one thing and tells whether it succeeded. An exception is a fault."""

    run_tests: Callable[[Path, str], Verdict]
    """A test suite by name, in a working tree."""
    run_gate: Callable[[Path, str], Verdict]
    """A gate by type (LINT, UNIT, …), in a working tree."""
    notify: Callable[[Notify], Verdict]


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """What became of one action or validation."""

    action: str
    required: bool
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Compensation:
    """What became of a plan. `sha` is the branch's new tip, when it moved (`already`: in an earlier call)."""

    success: bool
    actions: tuple[ActionOutcome, ...]
    error: str | None = None
    sha: str | None = None
    already: bool = False


def compensate(
    repository: Path,
    plan: CompensationPlan,
    ledger_id: str,
    means: Means,
    *,
    branch: str,
    scratch: Path,
    identity: Identity,
) -> Compensation | Refusal:
    """Carry out a plan.

    Reverts, tests, gates and required notices come first, in a temporary worktree; then the branch moves, by
    compare-and-swap; then the other notices go out, which cannot change anything any more. A retry finds the reverts
    by their trailers (`Interlock-Revert: <ledger id>`) and only sends those again.

    Args:
        repository: the user's checkout, or any worktree of it.
        plan: what to do.
        ledger_id: the ledger entry rolled back.
        means: how tests, gates and notices are run.
        branch: the branch the patch is on; the plan's reverts must name the same.
        scratch: where the temporary worktree may stand.
        identity: author and committer of the reverts.

    Raises:
        RepositoryBusy, GitFault: see there; try again.
    """
    found = place.find(repository)
    if isinstance(found, Refusal):
        return found
    git = found.git(identity)
    if (old := branches.tip(git, branch)) is None or any(each.branch != branch for each in plan.reverts):
        return Refusal(f"there is no branch {branch}, or the plan reverts on another", "Correct the plan")
    work = _Rollback(git, plan, ledger_id, means, branch, old)
    if plan.reverts and (sha := reverting.found(git, plan.reverts, ledger_id, old)):
        return Compensation(True, work.tell(), sha=sha, already=True)
    with temporary(found, old, scratch / f"compensation-{safe(ledger_id)}", identity) as there:
        tried = work.attempt(there)
    if not tried.success:
        return tried
    if tried.sha and (error := work.land(tried.sha)):
        return Compensation(False, tried.actions, error)
    return replace(tried, actions=tried.actions + work.tell())


@dataclass(frozen=True, slots=True)
class _Rollback:
    git: Git
    plan: CompensationPlan
    ledger_id: str
    means: Means
    branch: str
    old: str

    def attempt(self, there: Git) -> Compensation:
        """Everything that may still fail, in a worktree of its own."""
        reverted, error = _until_failure(self._reverts(there))
        if error:
            return Compensation(False, reverted, error)
        head = there.line("rev-parse", "HEAD")  # now: what a test suite may commit there is not to land
        proved, error = _until_failure(self._proofs(there, head))
        return Compensation(not error, reverted + proved, error, sha=head if head != self.old and not error else None)

    def land(self, sha: str) -> str | None:
        """Move the branch; why not, if it could not be."""
        with place.hold(place.Repository(self.git.directory), self.git.identity) as git:
            stopped = branches.move(git, self.branch, sha, self.old)
        if isinstance(stopped, Moved):
            return f"{self.branch} moved from {self.old} to {stopped.now} meanwhile; try again"
        return str(stopped) if stopped else None

    def tell(self) -> tuple[ActionOutcome, ...]:
        """Send the notices that nothing depends on."""
        return tuple(self._notify(each) for each in self._notices(required=False))

    def _reverts(self, there: Git) -> Iterator[ActionOutcome]:
        for action in self.plan.reverts:
            verdict = reverting.revert(there, action.commit_sha, self.ledger_id)
            yield ActionOutcome(f"git_revert {action.commit_sha}", action.required, verdict)

    def _proofs(self, there: Git, head: str) -> Iterator[ActionOutcome]:
        for action in self.plan.actions:
            if isinstance(action, RunTests):
                verdict = self.means.run_tests(there.directory, action.test_suite)
                yield ActionOutcome(f"run_tests {action.test_suite}", action.required, verdict)
        for gate in self.plan.validation.required_gates:
            yield ActionOutcome(f"gate {gate}", True, self.means.run_gate(there.directory, gate))
        if self.plan.validation.verify_clean_state:
            yield ActionOutcome("verify_clean_state", True, reverting.clean(there, head))
        for notice in self._notices(required=True):
            yield self._notify(notice)

    def _notices(self, *, required: bool) -> Iterator[Notify]:
        return (each for each in self.plan.actions if isinstance(each, Notify) and each.required is required)

    def _notify(self, notice: Notify) -> ActionOutcome:
        return ActionOutcome(f"notify {', '.join(notice.channels)}", notice.required, self.means.notify(notice))


def _until_failure(steps: Iterator[ActionOutcome]) -> tuple[tuple[ActionOutcome, ...], str | None]:
    """Take the steps, up to the first required one that fails; and what to say then."""
    done: list[ActionOutcome] = []
    for outcome in steps:
        done.append(outcome)
        if outcome.required and not outcome.verdict.success:
            return tuple(done), f"Required action failed: {outcome.action}: {outcome.verdict.says}"
    return tuple(done), None
