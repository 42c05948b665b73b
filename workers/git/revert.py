"""Reverts commits, each by a commit that names the ledger entry it is made for."""

from collections.abc import Sequence
from dataclasses import dataclass

from interlock.workers.git import branches, inside, trailers
from interlock.workers.git.command import Git
from interlock.workers.git.fetch_commits import known
from interlock.workers.git.git_directories import LockedWorktree
from interlock.workers.git.merge import merge_tree
from interlock.workers.git.results import Conflict
from interlock.workers.git.rollback_plan import GitRevert

REVERTED = "Interlock-Reverts"


@dataclass(frozen=True, slots=True)
class RevertOutcome:
    """Whether one thing succeeded, and its message."""

    success: bool
    message: str = ""


def revert(git: Git, head: str, commit_sha: str, ledger_id: str) -> RevertOutcome:
    """Revert one commit on top of another, among git's objects; a merge relative to its first parent.

    Args:
        git: at the repository.
        head: the commit to revert on.
        commit_sha: the commit to revert, an ancestor of `head`.
        ledger_id: the ledger entry it is done for.

    Returns:
        Success with the new commit as its message; failure if it conflicts, or cannot be reverted.
    """
    result = git.run("rev-parse", "--verify", "--quiet", f"{commit_sha}^{{commit}}", accept=(0, 1, 128))
    full = result.out.decode().strip()
    if not full or not branches.contains(git, head, full):
        return RevertOutcome(False, f"{commit_sha} is not a commit of this branch")
    if len(git.line("rev-list", "--parents", "-n", "1", full).split(" ")) == 1:
        return RevertOutcome(False, f"{commit_sha} is the first commit; reverting it would leave nothing")
    # The tree without the commit: the change from it back to its parent, merged with all later changes.
    common = _bare_commit(git, full)
    tree = merge_tree(git, _bare_commit(git, head, common), _bare_commit(git, f"{full}^1", common))
    if isinstance(tree, Conflict):
        return RevertOutcome(False, f"conflict in {', '.join(tree.files)}" if tree.files else tree.message)
    return RevertOutcome(True, _commit(git, head, tree, full, ledger_id))


def _bare_commit(git: Git, revision: str, *parents: str) -> str:
    """A commit of a revision's tree that nothing refers to; the same sha each time."""
    dated = git.with_environment(GIT_AUTHOR_DATE="@0 +0000", GIT_COMMITTER_DATE="@0 +0000")
    words = [word for parent in parents for word in ("-p", parent)]
    return dated.line("commit-tree", f"{revision}^{{tree}}", *words, "-m", "for a merge")


def _commit(git: Git, head: str, tree: str, full: str, ledger_id: str) -> str:
    subject = git.line("log", "-1", "--format=%s", full, "--")
    words = f'Revert "{subject}"\n\nThis reverts commit {full}.'
    message = trailers.message(words, {REVERTED: full, trailers.REVERT: ledger_id})
    return git.run("commit-tree", tree, "-p", head, "-F", "-", stdin=message).out.decode().strip()


def found(git: Git, reverts: Sequence[GitRevert], ledger_id: str, tip: str) -> str | None:
    """The commit by which every revert of a plan was on the branch, or None if one is missing."""
    seen = None
    for each in reverts:
        full = git.run("rev-parse", "--verify", "--quiet", f"{each.commit_sha}^{{commit}}", accept=(0, 1, 128))
        sha = full.out.decode().strip()
        newer = _reverts(git, sha, ledger_id, tip) if sha else None
        if newer is None and each.required:
            return None
        seen = newer or seen
    return seen


def _reverts(git: Git, sha: str, ledger_id: str, tip: str) -> str | None:
    carried = trailers.find(git, REVERTED, sha, tip, f"^{sha}")
    both = trailers.find(git, trailers.REVERT, ledger_id, tip, f"^{sha}")
    return carried if carried and both else None


def takes_back(git: Git, action: GitRevert, commit_sha: str) -> bool:
    """Whether a revert undoes this commit: it is the reverted commit, or came with the reverted merge."""
    return known(git, commit_sha, action.commit_sha) and not known(git, commit_sha, f"{action.commit_sha}^1")


def mends(git: Git, mended: str, commit_sha: str, tip: str) -> bool:
    """Whether a commit made by people may have undone another: it is later, and changes a file that the other changed.

    Args:
        git: of the repository.
        mended: the commit that, people say, did so.
        commit_sha: the commit to be undone.
        tip: of the branch that has both.
    """
    later = known(git, mended, tip) and known(git, commit_sha, f"{mended}^1")
    return later and not _changed(git, mended).isdisjoint(_changed(git, commit_sha))


def _changed(git: Git, commit_sha: str) -> set[str]:
    return set(git.records("diff", "--name-only", "--no-renames", "-z", f"{commit_sha}^1", commit_sha))


def clean(locked: LockedWorktree) -> RevertOutcome:
    """Whether HEAD and the tracked files are still as the reverts made them. Untracked files may be left by tests."""
    if (now := (inside.read(locked.path, ".git/HEAD", limit_bytes=200) or b"nothing").decode().strip()) != locked.tip:
        return RevertOutcome(False, f"HEAD went from {locked.tip} to {now} after the revert")
    if changed := locked.changed():
        return RevertOutcome(False, f"changed after the revert: {', '.join(changed[:5])}")
    return RevertOutcome(True, "clean")
