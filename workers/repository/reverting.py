"""Revert commits in a worktree, each into a commit that says for whom."""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.repository import branches, trailers
from workers.repository.git import Git
from workers.repository.plan import GitRevert

REVERTED = "Interlock-Reverts"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one thing succeeded, and what it said."""

    success: bool
    says: str = ""


def revert(there: Git, commit_sha: str, ledger_id: str) -> Verdict:
    """Revert one commit at the worktree's HEAD; a merge against its first parent. A conflict is a verdict."""
    said = there.run("rev-parse", "--verify", "--quiet", f"{commit_sha}^{{commit}}", accept=(0, 1, 128))
    full = said.out.decode().strip()
    if not full or not branches.contains(there, "HEAD", full):
        return Verdict(False, f"{commit_sha} is not a commit of this branch")
    parents = there.line("rev-list", "--parents", "-n", "1", full).split(" ")[1:]
    if not parents:
        return Verdict(False, f"{commit_sha} is the first commit; reverting it would leave nothing")
    mainline = ["-m", "1"] if len(parents) > 1 else []
    tried = there.run("revert", "--no-commit", *mainline, full, accept=None)
    if tried.status != 0:
        files = there.records("diff", "--name-only", "--diff-filter=U", "-z")
        there.run("reset", "--hard", "--quiet", "HEAD")
        return Verdict(False, f"conflict in {', '.join(files)}" if files else tried.words)
    return _commit(there, full, ledger_id)


def _commit(there: Git, full: str, ledger_id: str) -> Verdict:
    subject = there.line("log", "-1", "--format=%s", full, "--")
    words = f'Revert "{subject}"\n\nThis reverts commit {full}.'
    message = trailers.message(words, {REVERTED: full, trailers.REVERT: ledger_id})
    head, tree = there.line("rev-parse", "HEAD"), there.line("write-tree")
    made = there.run("commit-tree", tree, "-p", head, "-F", "-", given=message).out.decode().strip()
    there.run("reset", "--hard", "--quiet", made)
    return Verdict(True, made)


def found(git: Git, reverts: Sequence[GitRevert], ledger_id: str, tip: str) -> str | None:
    """The commit at which every revert of a plan was on the branch, or None where one is missing."""
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
    """Whether reverting takes this commit back: it is the one reverted, or came with the merge that is."""
    return _reached(git, action.commit_sha, commit_sha) and not _reached(git, f"{action.commit_sha}^1", commit_sha)


def mends(git: Git, mended: str, commit_sha: str, tip: str) -> bool:
    """Whether a commit that people made may have taken another back: it came after it, and changes a file it changed.

    Args:
        git: of the repository.
        mended: what they say did.
        commit_sha: what was to be taken back.
        tip: of the branch that has both.
    """
    later = _reached(git, tip, mended) and _reached(git, f"{mended}^1", commit_sha)
    return later and not _changed(git, mended).isdisjoint(_changed(git, commit_sha))


def _changed(git: Git, commit_sha: str) -> set[str]:
    return set(git.records("diff", "--name-only", "--no-renames", "-z", f"{commit_sha}^1", commit_sha))


def _reached(git: Git, revision: str, commit_sha: str) -> bool:
    """Whether a commit lies behind a revision; one that does not exist reaches nothing."""
    return git.run("merge-base", "--is-ancestor", commit_sha, revision, accept=(0, 1, 128)).status == 0


def clean(there: Git, head: str) -> Verdict:
    """Whether HEAD and the tree are still what the reverts made them. Files that git does not know, tests may leave."""
    if (now := there.line("rev-parse", "HEAD")) != head:
        return Verdict(False, f"HEAD went from {head} to {now} after the revert")
    changed = there.records("status", "--porcelain", "-z", "--no-renames", "--untracked-files=no")
    if changed:
        return Verdict(False, f"changed after the revert: {', '.join(each[3:] for each in changed[:5])}")
    return Verdict(True, "clean")
