"""Merge a completed workstream into its base branch, one at a time (SSOT 1.3.7, 5: only completed ones)."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from workers.repository import branches, place, trailers
from workers.repository.branches import Moved
from workers.repository.git import Git, Identity
from workers.repository.lock import LOCK_SECONDS
from workers.repository.outcomes import Conflict, Refusal
from workers.repository.worktree import Worktree
from workflows.errors import InterlockError

TRIES = 5


class BranchMoves(InterlockError):
    """The base branch was moved by somebody else each time we were about to. Try again when it is quieter."""


class Hindered(Exception):
    """The base branch could not be moved now: `by` says why."""

    def __init__(self, by: Moved | Refusal) -> None:
        super().__init__(str(by))
        self.by = by


@dataclass(frozen=True, slots=True)
class Merged:
    """The base branch contains the workstream's branch, since the commit `sha`."""

    sha: str
    already: bool = False


def merge(
    done: Worktree,
    message: str,
    *,
    identity: Identity,
    lock_seconds: float = LOCK_SECONDS,
    moving: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> Merged | Conflict | Refusal:
    """Merge a workstream's branch into its base branch, with a merge commit of its own.

    The merge is made among git's objects, by `git merge-tree`: no checkout is needed for it, so there is none that a
    killed process could leave half done. Then the base branch moves, as `branches.move` tells.

    Args:
        done: the workstream's worktree; it may be closed by now.
        message: the merge commit's words; its trailer is `Interlock-Workstream: <branch>`.
        identity: its author and committer.
        lock_seconds: how long to wait for others at work in the repository.
        moving: entered, with the merge commit, just before the base branch moves to it, and left once it has; what it
            raises on entering keeps the branch where it is, and it is left by an exception if the branch stays there.

    Returns:
        `Merged`, also when an earlier call did it; `Conflict` with the files, nothing changed; `Refusal` if a branch is
        missing or the base branch is checked out with uncommitted changes.

    Raises:
        RepositoryBusy: another held the repository's lock for too long; names its pid.
        BranchMoves, GitFault: see there; try again.
    """
    with place.hold(done.repository, identity, lock_seconds) as git:
        for _ in range(TRIES):
            outcome = _merge_once(git, done, message, moving)
            if not isinstance(outcome, Moved):
                return outcome
    raise BranchMoves(f"{done.base_branch} moved {TRIES} times while {done.branch} was being merged into it")


def _merge_once(
    git: Git, done: Worktree, message: str, moving: Callable[[str], AbstractContextManager[None]]
) -> Merged | Conflict | Refusal | Moved:
    base, tip = branches.tip(git, done.base_branch), branches.tip(git, done.branch)
    if base is None:
        return Refusal(f"there is no branch {done.base_branch}", "Make it, or name the one to merge into")
    if tip is None or branches.contains(git, base, tip):
        return _merged_before(git, done, base, tip)
    tree = _merge_tree(git, base, tip)
    if isinstance(tree, Conflict):
        return tree
    words = trailers.message(message, {trailers.WORKSTREAM: done.branch})
    made = git.run("commit-tree", tree, "-p", base, "-p", tip, "-F", "-", given=words).out.decode().strip()
    try:
        with moving(made):
            if hindered := branches.move(git, done.base_branch, made, base):
                raise Hindered(hindered)
    except Hindered as stayed:
        return stayed.by
    return Merged(made)


def _merged_before(git: Git, done: Worktree, base: str, tip: str | None) -> Merged | Refusal:
    if sha := trailers.find(git, trailers.WORKSTREAM, done.branch, "--first-parent", base):
        return Merged(sha, already=True)
    if tip is None:
        return Refusal(f"there is no branch {done.branch}, and no merge of it", "Nothing can be merged")
    return Merged(base, already=True)  # it has nothing of its own


def _merge_tree(git: Git, base: str, tip: str) -> str | Conflict:
    said = git.run("merge-tree", "--write-tree", "--name-only", "-z", base, tip, accept=(0, 1))
    tree, _, rest = said.out.partition(b"\0")
    if said.status == 0:
        return tree.decode().strip()
    files, _, words = rest.partition(b"\0\0")
    return Conflict(tuple(os.fsdecode(each) for each in files.split(b"\0") if each), _messages(words))


def _messages(words: bytes) -> str:
    """The sentences among the merge's messages: each stands at the end of its record, after its paths."""
    said = words.decode(errors="replace").split("\0")
    return "; ".join(each.strip() for each in said if "CONFLICT" in each and each.endswith("\n"))
