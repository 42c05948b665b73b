"""Branches: where one stands, where it is checked out, and how to move it under its user's feet without a stumble."""

from dataclasses import dataclass
from pathlib import Path

from workers.repository import records
from workers.repository.git import Git
from workers.repository.outcomes import Refusal

MOVING = "interlock-moving.json"


@dataclass(frozen=True, slots=True)
class Checkout:
    """One working tree of a repository, as `git worktree list` knows it."""

    path: Path
    ref: str | None
    locked: str | None
    prunable: bool
    linked: bool
    """Made by `git worktree add`; the user's own checkout is not."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The branch was not where it was expected; nothing was changed."""

    now: str


def tip(git: Git, branch: str) -> str | None:
    """The commit a local branch points to, or None where there is no such branch."""
    said = git.run("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}", accept=(0, 1))
    return said.out.decode().strip() or None


def contains(git: Git, descendant: str, ancestor: str) -> bool:
    """Whether `ancestor` is reached from `descendant`."""
    return git.run("merge-base", "--is-ancestor", ancestor, descendant, accept=(0, 1)).status == 0


def checkouts(git: Git) -> list[Checkout]:
    """Every working tree of the repository, the user's own first."""
    blocks = git.run("worktree", "list", "--porcelain", "-z").out.decode(errors="surrogateescape").split("\0\0")
    return [_checkout(block, linked=place > 0) for place, block in enumerate(blocks) if block.strip("\0")]


def _checkout(block: str, *, linked: bool) -> Checkout:
    found = dict(line.partition(" ")[::2] for line in block.split("\0"))
    return Checkout(Path(found["worktree"]), found.get("branch"), found.get("locked"), "prunable" in found, linked)


def move(git: Git, branch: str, new: str, old: str) -> Moved | Refusal | None:
    """Move a branch forward from `old` to `new`, and its checkout with it where it has one. Hold the repository's lock.

    A branch that is nowhere checked out is one compare-and-swap. One that is, is fast-forwarded there, if that checkout
    is clean; a crash half-way is noticed and undone by the next call, never the user's own edits.

    Args:
        git: at the repository's common directory.
        branch: the branch's name.
        new: the commit to move to, a descendant of `old`.
        old: the commit it must point to now.

    Returns:
        None once it is moved; `Moved` if it was elsewhere; `Refusal` if its checkout has changes.

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


def _elsewhere(git: Git, branch: str, old: str) -> Moved | None:
    now = tip(git, branch)
    return None if now == old else Moved(now or "nowhere")


def _swap(git: Git, branch: str, new: str, old: str) -> Moved | None:
    said = git.run("update-ref", "-m", "interlock", f"refs/heads/{branch}", new, old, accept=None)
    if said.status == 0:
        return None
    if now := _elsewhere(git, branch, old):
        return now
    git.run("update-ref", "-m", "interlock", f"refs/heads/{branch}", new, old)  # fails again, in git's own words
    return None


def _forward(git: Git, path: Path, branch: str, new: str, old: str) -> Moved | Refusal | None:
    there = git.at(path)
    intent = git.directory / MOVING
    if (begun := records.read(intent)) is not None:
        if begun["path"] == str(path) and begun["old"] == old:
            _take_back(there, str(begun["new"]), old)
        intent.unlink()
    if changed := _changed(there):
        return _dirty(branch, path, changed)
    records.write(intent, {"path": str(path), "branch": branch, "old": old, "new": new})
    said = there.run("merge", "--ff-only", "--no-autostash", "--no-stat", "--quiet", new, accept=None)
    now = tip(git, branch)
    intent.unlink()
    if now == new:
        return None
    return Refusal(f"{path} would not take the merge: {said.words}", "Mend that there; it is tried again")


def _changed(git: Git) -> dict[str, str]:
    """Tracked files with changes, staged or not; untracked files are in nobody's way until a merge brings one."""
    found = git.records("status", "--porcelain", "-z", "--no-renames", "--untracked-files=no")
    return {entry[3:]: entry[:2] for entry in found}


def _dirty(branch: str, path: Path, changed: dict[str, str]) -> Refusal:
    some = ", ".join(sorted(changed)[:5]) + (", …" if len(changed) > 5 else "")
    return Refusal(
        f"branch {branch} is checked out in {path}, with uncommitted changes ({some})",
        "Commit or stash them there, or switch it to another branch; nothing was merged",
    )


def _take_back(there: Git, new: str, old: str) -> None:
    """Undo a fast-forward that was killed half-way, if every changed file is one it was writing."""
    written = there.records("diff-tree", "-r", "-z", "--no-renames", "--name-only", old, new)
    # Its new files are untracked yet: git would take them for the user's and refuse to write them again.
    if all(_ours(there, each, new, old) for each in {*_changed(there), *written}):
        there.run("read-tree", "--reset", "-u", new)
        there.run("read-tree", "--reset", "-u", old)


def _ours(there: Git, path: str, new: str, old: str) -> bool:
    file = there.directory / path
    if file.is_symlink() or not file.exists():
        return True  # neither can hold an edit
    content = file.read_bytes()
    wanted = there.run("cat-file", "blob", f"{new}:{path}", accept=(0, 128))
    before = there.run("cat-file", "blob", f"{old}:{path}", accept=(0, 128))
    # A killed git leaves a file begun and not ended.
    return (wanted.status == 0 and wanted.out.startswith(content)) or (before.status == 0 and before.out == content)
