"""Merges a completed workstream into its base branch, one at a time (WORKSTREAM-5: only completed ones)."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from interlock.workers.git import branches, repository, trailers
from interlock.workers.git.branches import BranchMoved
from interlock.workers.git.command import Git
from interlock.workers.git.diff_summary import PatchReason
from interlock.workers.git.lock import LOCK_SECONDS
from interlock.workers.git.policy import Checked, PatchPolicy, judge
from interlock.workers.git.results import Committed, Conflict, Refusal
from interlock.workers.git.trial_index import between, links
from interlock.workers.git.worktree import Worktree, import_commits
from interlock.workflows.errors import InterlockError

TRIES = 5


class BranchMoves(InterlockError):
    """The base branch was moved by others before each of our attempts. Try again later."""


class BranchNotMoved(Exception):
    """The base branch could not be moved now; `by` says why."""

    def __init__(self, by: BranchMoved | Refusal) -> None:
        super().__init__(str(by))
        self.by = by


def merge(
    done: Worktree,
    message: str,
    *,
    policy: PatchPolicy | None = None,
    lock_seconds: float = LOCK_SECONDS,
    moving: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> Committed | Conflict | Checked | Refusal:
    """Merge a workstream's branch into its base branch, with a merge commit of its own.

    All that the merge changes in the base branch is first judged by the policy, whoever committed it.

    The merge is made with `git merge-tree`, among git's objects. It needs no checkout, so a killed process leaves none
    half done. Then `branches.move` moves the base branch.

    Args:
        done: the workstream's worktree; it may be closed by now.
        message: the merge commit's message; its trailer is `Interlock-Workstream: <branch>`.
        policy: what it may change.
        lock_seconds: how long to wait for others that use the repository.
        moving: takes the merge commit; the base branch moves inside this context, so that a caller can record both
            together. If entering raises, the branch does not move. If the branch cannot move, the context is left by an
            exception.

    Returns:
        `Committed`, also if an earlier call merged it, or with the base branch's tip if there is nothing to merge;
        `Conflict` with the files, nothing changed; `Checked` if the policy forbids a change, or the worktree's commits
        cannot be imported; `Refusal` if a branch is missing or the base branch is checked out with uncommitted changes.

    Raises:
        BranchMoves: others moved the base branch before each attempt. Try again.
        RepositoryBusy: another process holds the lock for too long. Try again.
        GitFault: git failed; the message says how. Repair that and try again.
    """
    if broken := import_commits(done, lock_seconds=lock_seconds):
        return Checked(False, False, False, (PatchReason("", "commits", str(broken)),))
    with repository.hold(done.repository, lock_seconds) as git:
        for _ in range(TRIES):
            outcome = _merge_once(git, done, message, policy or PatchPolicy(), moving)
            if not isinstance(outcome, BranchMoved):
                return outcome
    raise BranchMoves(f"{done.base_branch} moved {TRIES} times while {done.branch} was being merged into it")


def _merge_once(
    git: Git,
    done: Worktree,
    message: str,
    policy: PatchPolicy,
    moving: Callable[[str], AbstractContextManager[None]],
) -> Committed | Conflict | Checked | Refusal | BranchMoved:
    base, tip = branches.tip(git, done.base_branch), branches.tip(git, done.branch)
    if base is None:
        return Refusal(f"there is no branch {done.base_branch}", "Create it, or name another branch to merge into")
    if tip is None or branches.contains(git, base, tip):
        return _merged_before(git, done, base, tip)
    tree = merge_tree(git, base, tip)
    if isinstance(tree, Conflict):
        return tree
    if not (checked := judge(between(git, base, tree), policy, links=links(git, base))).passed:
        return checked
    words = trailers.message(message, {trailers.WORKSTREAM: done.branch})
    made = git.run("commit-tree", tree, "-p", base, "-p", tip, "-F", "-", stdin=words).out.decode().strip()
    try:
        with moving(made):
            if hindered := branches.move(git, done.base_branch, made, base):
                raise BranchNotMoved(hindered)
    except BranchNotMoved as stayed:
        return stayed.by
    return Committed(made)


def _merged_before(git: Git, done: Worktree, base: str, tip: str | None) -> Committed | Refusal:
    if sha := trailers.find(git, trailers.WORKSTREAM, done.branch, "--first-parent", base):
        return Committed(sha, already=True)
    if tip is None:
        return Refusal(
            f"there is no branch {done.branch}, and {done.base_branch} has no merge of it", "Nothing can be merged"
        )
    return Committed(base, already=True)  # the workstream has no commits of its own


def merge_tree(git: Git, base: str, tip: str) -> str | Conflict:
    """The tree of two merged commits, or their conflict."""
    result = git.run("merge-tree", "--write-tree", "--name-only", "-z", base, tip, accept=(0, 1))
    tree, _, rest = result.out.partition(b"\0")
    if result.status == 0:
        return tree.decode().strip()
    files, _, words = rest.partition(b"\0\0")
    return Conflict(tuple(os.fsdecode(each) for each in files.split(b"\0") if each), _messages(words))


def _messages(words: bytes) -> str:
    """The sentences among the merge's messages: each is at the end of its record, after its paths."""
    parts = words.decode(errors="replace").split("\0")
    return "; ".join(each.strip() for each in parts if "CONFLICT" in each and each.endswith("\n"))
