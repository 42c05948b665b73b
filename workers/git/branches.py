"""Branches: their tips, where they are checked out, and how to move one without harm to the user's checkout."""

from dataclasses import dataclass
from pathlib import Path

from interlock.workers.git import state_files
from interlock.workers.git.command import Git
from interlock.workers.git.results import Refusal

MOVING = "interlock-moving.json"


@dataclass(frozen=True, slots=True)
class Checkout:
    """One working tree of a repository, as `git worktree list` shows it."""

    path: Path
    ref: str | None
    prunable: bool


@dataclass(frozen=True, slots=True)
class BranchMoved:
    """The branch was not where it was expected; nothing was changed."""

    now: str


def tip(git: Git, branch: str) -> str | None:
    """The commit that a local branch points to; None if there is no such branch."""
    result = git.run("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}", accept=(0, 1))
    return result.out.decode().strip() or None


def tree(git: Git, commit: str) -> str:
    """The tree of a commit."""
    return git.line("rev-parse", f"{commit}^{{tree}}")


def contains(git: Git, descendant: str, ancestor: str) -> bool:
    """Whether `ancestor` is reachable from `descendant`."""
    return git.run("merge-base", "--is-ancestor", ancestor, descendant, accept=(0, 1)).status == 0


def checkouts(git: Git) -> list[Checkout]:
    """Every working tree of the repository, the user's own first."""
    output = git.at(git.directory).run("worktree", "list", "--porcelain", "-z").out
    blocks = output.decode(errors="surrogateescape").split("\0\0")
    found = [dict(line.partition(" ")[::2] for line in block.split("\0")) for block in blocks if block.strip("\0")]
    return [Checkout(Path(each["worktree"]), each.get("branch"), "prunable" in each) for each in found]


def move(git: Git, branch: str, new: str, old: str) -> BranchMoved | Refusal | None:
    """Move a branch forward from `old` to `new`, with its checkout if it has one. Hold the repository's lock.

    A branch that is not checked out is moved by a compare-and-swap. One that is checked out is fast-forwarded there, if
    that checkout is clean. The next call detects and undoes a half-done fast-forward, but never the user's own edits.

    Args:
        git: at the repository's common directory.
        branch: the branch's name.
        new: the commit to move to, a descendant of `old`.
        old: the commit it must point to now.

    Returns:
        None once it is moved; `BranchMoved` if it was elsewhere; `Refusal` if its checkout has changes.

    Raises:
        GitFault: git failed.
    """
    where = [each for each in checkouts(git) if each.ref == f"refs/heads/{branch}" and not each.prunable]
    if len(where) > 1:
        return Refusal(
            f"branch {branch} is checked out in {len(where)} places", "Leave it in all but one (`git switch --detach`)"
        )
    if now := _elsewhere(git, branch, old):
        return now
    return _forward(git, where[0].path, branch, new, old) if where else _swap(git, branch, new, old)


def _elsewhere(git: Git, branch: str, old: str) -> BranchMoved | None:
    now = tip(git, branch)
    return None if now == old else BranchMoved(now or "nowhere")


def _swap(git: Git, branch: str, new: str, old: str) -> BranchMoved | None:
    result = git.run("update-ref", "-m", "interlock", f"refs/heads/{branch}", new, old, accept=None)
    if result.status == 0:
        return None
    if now := _elsewhere(git, branch, old):
        return now
    git.run("update-ref", "-m", "interlock", f"refs/heads/{branch}", new, old)  # raises, with git's own words
    return None


def _forward(git: Git, path: Path, branch: str, new: str, old: str) -> BranchMoved | Refusal | None:
    there = git.at(path)
    intent = git.directory / MOVING
    if (pending := state_files.read(intent)) is not None:
        if pending["path"] == str(path) and pending["old"] == old:
            _take_back(there, str(pending["new"]), old)
        intent.unlink()
    if changed := _changed(there):
        some = ", ".join(sorted(changed)[:5]) + (", …" if len(changed) > 5 else "")
        return Refusal(
            f"branch {branch} is checked out in {path}, with uncommitted changes ({some})",
            "Commit or stash them there, or switch it to another branch; nothing was merged",
        )
    state_files.write(intent, {"path": str(path), "branch": branch, "old": old, "new": new})
    result = there.run("merge", "--ff-only", "--no-autostash", "--no-stat", "--quiet", new, accept=None)
    now = tip(git, branch)
    intent.unlink()
    if now == new:
        return None
    return Refusal(f"git cannot merge in {path}: {result.words}", "Correct that there; the merge will be retried")


def _changed(git: Git) -> dict[str, str]:
    """Tracked files with changes, staged or not. Untracked files are in the way only if a merge adds them."""
    found = git.records("status", "--porcelain", "-z", "--no-renames", "--untracked-files=no")
    return {entry[3:]: entry[:2] for entry in found}


def _take_back(there: Git, new: str, old: str) -> None:
    """Undo a fast-forward that was killed half-way, if every changed file is one that it was writing."""
    written = there.records("diff-tree", "-r", "-z", "--no-renames", "--name-only", old, new)
    # Its new files are still untracked: git would take them for the user's and refuse to overwrite them.
    if all(_written_by_merge(there, each, new, old) for each in {*_changed(there), *written}):
        there.run("read-tree", "--reset", "-u", new)
        there.run("read-tree", "--reset", "-u", old)


def _written_by_merge(there: Git, path: str, new: str, old: str) -> bool:
    file = there.directory / path
    if file.is_symlink() or not file.exists():
        return True  # neither can hold an edit
    content = file.read_bytes()
    wanted = there.run("cat-file", "blob", f"{new}:{path}", accept=(0, 128))
    before = there.run("cat-file", "blob", f"{old}:{path}", accept=(0, 128))
    # A killed git leaves an incomplete file.
    return (wanted.status == 0 and wanted.out.startswith(content)) or (before.status == 0 and before.out == content)
