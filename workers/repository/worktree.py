"""A worktree for each workstream: opened, found again, put back, closed. The user's own checkout is never touched."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workers.repository import branches, place
from workers.repository.branches import Checkout
from workers.repository.git import Git, Identity
from workers.repository.lock import LOCK_SECONDS, held
from workers.repository.outcomes import Refusal
from workers.repository.place import Repository
from workflows.errors import InterlockError

MARK = "interlock-patch.json"
OURS = "interlock/"
BEGINNING = "initializing"  # git's own reason for locking a worktree while it makes it


class NotAWorktree(InterlockError):
    """There is no worktree of a workstream at that path, or another branch is checked out in it. Open it first."""


@dataclass(frozen=True, slots=True)
class Worktree:
    """A workstream's working tree: on `branch`, which began at `base_branch`."""

    repository: Repository
    path: Path
    branch: str
    base_branch: str

    def __post_init__(self) -> None:
        if not self.branch.startswith(OURS):  # what is done to worktrees of ours must never be done to the user's
            raise NotAWorktree(f"{self.branch} is no workstream's branch; those begin with {OURS}")


def open_worktree(
    repository: Path, base_branch: str, branch: str, path: Path, *, lock_seconds: float = LOCK_SECONDS
) -> Worktree | Refusal:
    """Make a workstream's worktree, or find the one made before.

    Args:
        repository: the user's checkout; whether it is dirty does not matter.
        base_branch: the local branch a new `branch` begins at, and is merged into later.
        branch: as `naming.branch_name` gives it; one that exists is gone on with.
        path: where the worktree goes; empty, missing, or a worktree of ours.
        lock_seconds: how long to wait for others at work in the repository.

    Returns:
        The worktree, or a refusal: no repository, a bare one, no such base, the path or the branch taken.

    Raises:
        GitFault, RepositoryBusy: see there; try again.
    """
    found = place.find(repository)
    if isinstance(found, Refusal):
        return found
    if not branch.startswith(OURS) or found.git().run("check-ref-format", f"refs/heads/{branch}", accept=(0, 1)).status:
        return Refusal(f"{branch!r} is no name for a workstream's branch", "Take one from naming.branch_name")
    wanted = Worktree(found, path.absolute(), branch, base_branch)
    with place.hold(found, timeout_seconds=lock_seconds) as git:
        if (base := branches.tip(git, base_branch)) is None:
            return Refusal(
                f"{repository} has no branch {base_branch!r} with a commit", "Make it first, or name another base"
            )
        return _open(git, wanted, base)


def _open(git: Git, wanted: Worktree, base: str) -> Worktree | Refusal:
    standing = branches.checkouts(git)
    if taken := next(
        (each for each in standing if each.ref == f"refs/heads/{wanted.branch}" and not _at(each, wanted.path)), None
    ):
        if not taken.prunable:
            return Refusal(f"branch {wanted.branch} is checked out in {taken.path}", "Close that worktree first")
        discard(git, taken.path)
    mine = next((each for each in standing if _at(each, wanted.path)), None)
    if mine and _whole(git, mine, wanted):
        return wanted
    if not ours(git, wanted):
        return Refusal(f"{wanted.path} holds something else", "Empty it, or choose another place for the worktree")
    discard(git, wanted.path)
    wanted.path.parent.mkdir(parents=True, exist_ok=True)
    if branches.tip(git, wanted.branch) is None:
        git.run("update-ref", f"refs/heads/{wanted.branch}", base, "")
    git.run("worktree", "add", "--quiet", "--force", str(wanted.path), wanted.branch)
    return wanted


def _at(checkout: Checkout, path: Path) -> bool:
    return checkout.path == path or checkout.path == path.resolve()


def _whole(git: Git, mine: Checkout, wanted: Worktree) -> bool:
    if mine.locked == BEGINNING or mine.prunable or mine.ref != f"refs/heads/{wanted.branch}":
        return False
    return git.at(wanted.path).run("rev-parse", "--verify", "--quiet", "HEAD", accept=None).status == 0


def ours(git: Git, worktree: Worktree) -> bool:
    """Whether nobody loses anything when what stands at the worktree's path is removed."""
    mine = next((each for each in branches.checkouts(git) if _at(each, worktree.path)), None)
    if mine and not mine.prunable and mine.locked != BEGINNING and mine.ref != f"refs/heads/{worktree.branch}":
        return False
    return _removable(git, worktree.path, mine)


def _removable(git: Git, path: Path, mine: Checkout | None) -> bool:
    """Whether a path is free, or a linked worktree of this repository: never a checkout, never any other directory."""
    if not path.exists() or (mine is not None and mine.linked):
        return True
    return path.is_dir() and (not any(path.iterdir()) or _points_into(git, path))


def _points_into(git: Git, path: Path) -> bool:
    pointer = path / ".git"
    return pointer.is_file() and Path(_text(pointer).removeprefix("gitdir: ")).parent == git.directory / "worktrees"


def discard(git: Git, path: Path) -> None:
    """Remove a linked worktree, in whatever state a killed process left it. Hold the repository's lock.

    Raises:
        NotAWorktree: something else stands there; it is left alone.
    """
    mine = next((each for each in branches.checkouts(git) if _at(each, path)), None)
    if not _removable(git, path, mine):
        raise NotAWorktree(f"{path} is no worktree of {git.directory}, and is left alone")
    if path.is_dir():
        shutil.rmtree(path)  # before git forgets it: until then, what a killed removal leaves is known to be ours
    if mine:
        git.run("worktree", "remove", "--force", "--force", str(mine.path))
    for orphan in (git.directory / "worktrees").glob(f"{_escaped(path.name)}*"):
        if not _text(orphan / "gitdir"):  # git was killed before it wrote where the worktree stands
            shutil.rmtree(orphan)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="surrogateescape").strip()
    except FileNotFoundError:
        return ""


@contextlib.contextmanager
def hold(
    worktree: Worktree, identity: Identity | None = None, timeout_seconds: float = LOCK_SECONDS
) -> Iterator[tuple[Git, Path]]:
    """Be the only one of us at work in a worktree; yields git there, and the worktree's own git directory.

    Git children of a killed holder keep the lock until they end, so what is still locked inside is left over.

    Raises:
        NotAWorktree: it is gone, or not on its branch; never the user's own checkout.
        RepositoryBusy: another held it for longer than `timeout_seconds`; names its pid.
    """
    git = Git(worktree.path, identity or Identity())
    directory = _own_directory(git, worktree)
    try:
        with held(directory / place.LOCK, timeout_seconds) as lock:
            for left_over in ("index.lock", "HEAD.lock", "interlock-index", "interlock-index.lock"):
                (directory / left_over).unlink(missing_ok=True)
            yield git.holding(lock), directory
    except FileNotFoundError as gone:
        if directory.exists():
            raise
        raise NotAWorktree(f"{worktree.path} was closed meanwhile") from gone


def _own_directory(git: Git, worktree: Worktree) -> Path:
    if not worktree.path.is_dir():
        raise NotAWorktree(f"{worktree.path} does not exist; open the worktree of {worktree.branch} first")
    said = git.run("rev-parse", "--path-format=absolute", "--git-dir", "--show-toplevel", accept=None)
    answer = said.out.decode(errors="surrogateescape").splitlines()
    if said.status != 0 or Path(answer[0]).parent != worktree.repository.directory / "worktrees":
        raise NotAWorktree(f"{worktree.path} is no worktree of {worktree.repository.directory}")
    on = git.run("symbolic-ref", "--quiet", "HEAD", accept=(0, 1)).out.decode(errors="surrogateescape").strip()
    if Path(answer[1]) != worktree.path.resolve() or on != f"refs/heads/{worktree.branch}":
        raise NotAWorktree(f"{worktree.path} is not the worktree of {worktree.branch}, but of {on or 'no branch'}")
    return Path(answer[0])


def restore(worktree: Worktree, *, ignored: bool = False, lock_seconds: float = LOCK_SECONDS) -> None:
    """Put a worktree back to its last commit, and remove what tests left: never anything outside of it.

    Args:
        worktree: which one.
        ignored: also remove what `.gitignore` names (caches, but also an environment that took minutes to build).
        lock_seconds: how long to wait for others at work in it.

    Raises:
        NotAWorktree, RepositoryBusy, GitFault: see there.
    """
    with hold(worktree, timeout_seconds=lock_seconds) as (git, directory):
        git.run("reset", "--hard", "--quiet", "HEAD")
        for _ in range(2):  # once more for what only a `.gitignore` that has just gone kept from the first
            git.run("clean", "-ffdq", *(["-x"] if ignored else []))
        (directory / MARK).unlink(missing_ok=True)


def close(worktree: Worktree, *, lock_seconds: float = LOCK_SECONDS) -> None:
    """Remove a worktree; its branch too, once the base branch contains it. Closing a closed one does nothing.

    Raises:
        RepositoryBusy, GitFault: see there.
    """
    with contextlib.ExitStack() as held_too:
        with contextlib.suppress(NotAWorktree):  # gone, or half-made: nobody can be at work in it
            held_too.enter_context(hold(worktree, timeout_seconds=lock_seconds))
        with place.hold(worktree.repository, timeout_seconds=lock_seconds) as git:
            if ours(git, worktree):
                discard(git, worktree.path)
            _forget_merged(git, worktree)


def _forget_merged(git: Git, worktree: Worktree) -> None:
    tip, base = branches.tip(git, worktree.branch), branches.tip(git, worktree.base_branch)
    if tip and base and branches.contains(git, base, tip):
        git.run("update-ref", "-d", f"refs/heads/{worktree.branch}", tip)


@contextlib.contextmanager
def temporary(repository: Repository, commit: str, path: Path, identity: Identity) -> Iterator[Git]:
    """A worktree without a branch, for as long as the block runs; one that a killed process left there is replaced.

    Args:
        repository: whose.
        commit: what to check out.
        path: where; always the same for the same work, so that a retry finds what is left over.
        identity: for the commits made in it.

    Raises:
        RepositoryBusy: somebody is at the same work, or in the repository, for too long.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with held(path.with_name(f"{path.name}.lock"), vanish=True) as lock:
        with place.hold(repository) as git:
            discard(git, path)
            git.run("worktree", "add", "--quiet", "--force", "--detach", str(path), commit)
        try:
            yield Git(path, identity).holding(lock)
        finally:
            with place.hold(repository) as git:
                discard(git, path)
