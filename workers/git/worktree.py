"""A worktree for each workstream: opened, found again, restored, closed. The user's own checkout is never touched."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlock.workers.git import branches, git_directories, inside, set_aside, state_files
from interlock.workers.git import repository as place
from interlock.workers.git.command import Git
from interlock.workers.git.git_directories import MARK, RECORD, LockedWorktree, own_directory
from interlock.workers.git.lock import LOCK_SECONDS, held
from interlock.workers.git.ref_names import OURS, PLAIN
from interlock.workers.git.repository import Repository
from interlock.workers.git.results import Refusal
from interlock.workers.isolation.apart import OURSELVES, Isolation
from interlock.workflows.errors import InterlockError


class NotAWorktree(InterlockError):
    """There is no worktree of that workstream at that path. Open it first."""


@dataclass(frozen=True, slots=True)
class Worktree:
    """A workstream's working tree, on `branch`, which began at `base_branch`. `isolation`: who its commands run as."""

    repository: Repository
    path: Path
    branch: str
    base_branch: str
    isolation: Isolation = OURSELVES

    def __post_init__(self) -> None:
        if not self.branch.startswith(OURS):  # what we do to our worktrees must never be done to the user's
            raise NotAWorktree(f"{self.branch} is not a workstream's branch; their names begin with {OURS}")


def open_worktree(
    repository: Path,
    base_branch: str,
    branch: str,
    path: Path,
    *,
    isolation: Isolation = OURSELVES,
    lock_seconds: float = LOCK_SECONDS,
) -> Worktree | Refusal:
    """Create a workstream's worktree, or find the one created before.

    Args:
        repository: the user's checkout; it may have uncommitted changes.
        base_branch: the local branch a new `branch` begins at, and is merged into later.
        branch: from `ref_names.branch_name`; an existing one is continued.
        path: where the worktree goes; empty, missing, or a worktree of ours.
        isolation: who its commands run as, to whom it is given, and the sandbox for our git there.
        lock_seconds: how long to wait for others that use the repository.

    Returns:
        The worktree, or a refusal: no repository, a bare one, no such base, the path or the branch taken.

    Raises:
        GitFault: git failed; the message says how. Repair that and try again.
        RepositoryBusy: another process holds the lock for too long. Try again.
    """
    found = place.find(repository)
    if isinstance(found, Refusal):
        return found
    if not _can_name(found.git(), branch):
        return Refusal(f"{branch!r} cannot name a workstream's branch", "Make one with `ref_names.branch_name`")
    wanted = Worktree(found, path.absolute(), branch, base_branch, isolation)
    with place.hold(found, timeout_seconds=lock_seconds) as git:
        if (base := branches.tip(git, base_branch)) is None:
            return Refusal(
                f"{repository} has no branch {base_branch!r} with a commit", "Make it first, or name another base"
            )
        return _open(git, wanted, base)


def _can_name(git: Git, branch: str) -> bool:
    """Whether it can be a workstream's branch. Git is asked only about names that `branch_name` did not make."""
    if PLAIN.fullmatch(branch):
        return True
    return branch.startswith(OURS) and not git.run("check-ref-format", f"refs/heads/{branch}", accept=(0, 1)).status


def _open(git: Git, wanted: Worktree, base: str) -> Worktree | Refusal:
    if taken := next((each for each in branches.checkouts(git) if each.ref == f"refs/heads/{wanted.branch}"), None):
        return Refusal(f"branch {wanted.branch} is checked out in {taken.path}", "Switch to another branch there")
    record = _record(wanted.path)
    if record and _names(record, wanted) and record["whole"] and wanted.path.is_dir() and _tip(git, wanted):
        return wanted
    if not is_disposable(git, wanted):
        return Refusal(
            f"{wanted.path} holds files that are not this worktree's", "Empty it, or choose another directory"
        )
    discard(git, wanted.path)
    if (tip := _tip(git, wanted)) is None:
        git.run("update-ref", f"refs/heads/{wanted.branch}", base, "")
        tip = base
    made = LockedWorktree(wanted.repository, wanted.path, wanted.branch, tip, git, wanted.isolation)
    git_directories.finish(git_directories.prepare(made), (wanted.base_branch, base))
    return wanted


def _tip(git: Git, worktree: Worktree) -> str | None:
    return branches.tip(git, worktree.branch)


def _record(path: Path) -> dict[str, Any] | None:
    return state_files.read(own_directory(path) / RECORD)


def _names(record: dict[str, Any], worktree: Worktree) -> bool:
    return bool((record["repository"], record["branch"]) == (str(worktree.repository.directory), worktree.branch))


def is_disposable(git: Git, worktree: Worktree) -> bool:
    """Whether the entry at the worktree's path can be removed without loss to anybody."""
    record = _record(worktree.path)
    return _removable(git, worktree.path) and (record is None or not record["whole"] or _names(record, worktree))


def _removable(git: Git, path: Path) -> bool:
    """Whether a path is free, or a worktree that we made of this repository: never any other directory."""
    if not path.exists() and not path.is_symlink():
        return True
    if path.is_symlink() or not path.is_dir():
        return False
    record = _record(path)
    return not any(path.iterdir()) or (record is not None and record["repository"] == str(git.directory))


def discard(git: Git, path: Path) -> None:
    """Remove a worktree of ours, in whatever state a killed process left it. Hold the repository's lock.

    Raises:
        NotAWorktree: something else is there; it is left alone.
    """
    if not _removable(git, path):
        raise NotAWorktree(f"{path} is not a worktree of {git.directory}; it was not changed")
    inside.remove_tree(path)  # before our record of it, by which the remains of a killed removal are known to be ours
    inside.remove_tree(own_directory(path))


@contextlib.contextmanager
def hold(worktree: Worktree, timeout_seconds: float = LOCK_SECONDS) -> Iterator[LockedWorktree]:
    """Hold a worktree's lock against other Interlock processes.

    Git children of a killed holder keep the lock until they end. So any git lock file found inside is a leftover.

    Raises:
        NotAWorktree: it is gone, or another's; never the user's own checkout.
        RepositoryBusy: another held it for longer than `timeout_seconds`; names its pid.
    """
    own = _own(worktree)
    try:
        with held(own / place.LOCK, timeout_seconds) as lock:
            git = worktree.repository.git().holding(lock)
            _own(worktree)
            if (tip := _tip(git, worktree)) is None:
                raise NotAWorktree(f"there is no branch {worktree.branch}")
            found = LockedWorktree(worktree.repository, worktree.path, worktree.branch, tip, git, worktree.isolation)
            found.repair()
            set_aside.put_back(found.path, found.git_directory, found.account)
            found.follow()
            yield found
    except FileNotFoundError as gone:
        if own.exists():
            raise
        raise NotAWorktree(f"{worktree.path} was closed by another process meanwhile") from gone


def _own(worktree: Worktree) -> Path:
    record = _record(worktree.path)
    if record is None or not record["whole"] or worktree.path.is_symlink() or not worktree.path.is_dir():
        raise NotAWorktree(
            f"{worktree.path} is not an Interlock worktree; open the worktree of {worktree.branch} first"
        )
    if not _names(record, worktree):
        raise NotAWorktree(f"{worktree.path} is not the worktree of {worktree.branch}, but of {record['branch']}")
    return own_directory(worktree.path)


def restore(worktree: Worktree) -> None:
    """Restore a worktree to its last commit, and remove what tests left; never anything outside of it.

    What `.gitignore` names stays: caches, but also an environment that took minutes to build.

    Raises:
        NotAWorktree: there is no worktree at that path. Open it first.
        RepositoryBusy: another process holds the lock for too long. Try again.
        GitFault: git failed; the message says how. Repair that and try again.
    """
    with hold(worktree) as found:
        clean = ("-ffdq",)
        found.reset(found.tip, clean, clean)  # twice, for files that a `.gitignore`, removed by the first, protected
        (found.git_directory / MARK).unlink(missing_ok=True)


def content(worktree: Worktree) -> dict[str, str]:
    """What Interlock put into a worktree; changes that commands made to its files are not looked at.

    Returns:
        `commit`: its branch's; `patch`: the ledger entry whose patch is applied and not committed, if there is one;
        `tree`: the commit's tree, or that of the applied patch; `base`: the base branch's commit.

    Raises:
        NotAWorktree: there is no worktree at that path. Open it first.
        RepositoryBusy: another process holds the lock for too long. Try again.
        GitFault: git failed; the message says how. Repair that and try again.
    """
    with hold(worktree) as found:
        mark = state_files.read(found.git_directory / MARK)
        content = {"commit": found.tip, "tree": branches.tree(found.user_git, found.tip)}
        if mark and mark["head"] == found.tip:
            content |= {"tree": mark["tree"], "patch": mark["ledger_id"]}
        if base := branches.tip(found.user_git, worktree.base_branch):
            content["base"] = base
        return content


def import_commits(worktree: Worktree, *, lock_seconds: float = LOCK_SECONDS) -> Refusal | None:
    """Take commits that commands made on a worktree's branch into the user's repository; the reason if that fails.

    Raises:
        RepositoryBusy: another process holds the lock for too long. Try again.
        GitFault: git failed; the message says how. Repair that and try again.
    """
    with contextlib.suppress(NotAWorktree), hold(worktree, timeout_seconds=lock_seconds) as found:
        result = found.with_new_commits()
        return result if isinstance(result, Refusal) else None
    return None  # closed: commits made there were taken before


def follow(worktree: Worktree) -> None:
    """Move a worktree's files to its branch's present commit, as after a rollback. Raises as `hold`, if it exists."""
    with contextlib.suppress(NotAWorktree), hold(worktree):
        pass


def close(worktree: Worktree, *, lock_seconds: float = LOCK_SECONDS) -> None:
    """Remove a worktree, and its branch once the base branch contains it. Closing a closed one does nothing.

    Raises:
        RepositoryBusy: another process holds the lock for too long. Try again.
        GitFault: git failed; the message says how. Repair that and try again.
    """
    with contextlib.ExitStack() as held_too:
        with contextlib.suppress(NotAWorktree):  # gone, or half-made: nobody can be using it
            held_too.enter_context(hold(worktree, timeout_seconds=lock_seconds)).with_new_commits()
        with place.hold(worktree.repository, timeout_seconds=lock_seconds) as git:
            if is_disposable(git, worktree):
                discard(git, worktree.path)
            tip, base = _tip(git, worktree), branches.tip(git, worktree.base_branch)
            if tip and base and branches.contains(git, base, tip):
                git.run("update-ref", "-d", f"refs/heads/{worktree.branch}", tip)


@contextlib.contextmanager
def temporary(
    repository: Repository, commit: str, path: Path, isolation: Isolation = OURSELVES
) -> Iterator[LockedWorktree]:
    """A worktree without a branch, for as long as the block runs; one that a killed process left there is replaced.

    Args:
        repository: whose.
        commit: what to check out.
        path: where; always the same for the same work, so that a retry finds the leftovers.
        isolation: who commands in it run as, and the sandbox for our git there.

    Raises:
        RepositoryBusy: another process does the same work, or uses the repository, for too long.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with held(path.with_name(f"{path.name}.lock"), vanish=True) as lock:
        with place.hold(repository) as git:
            discard(git, path)
        git = repository.git().holding(lock)
        try:
            yield git_directories.finish(
                git_directories.prepare(LockedWorktree(repository, path, None, commit, git, isolation)), None
            )
        finally:
            with place.hold(repository) as git:
                discard(git, path)
