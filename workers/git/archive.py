"""Archives a failed or cancelled workstream for later analysis (WORKSTREAM-4): a ref, a bundle, and the reason."""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlock.workers.git import branches, fetch_commits, inside, repository, state_files, trailers, worktree
from interlock.workers.git.command import Git, GitFault
from interlock.workers.git.git_directories import INCOMING, LockedWorktree
from interlock.workers.git.lock import LOCK_SECONDS, RepositoryBusy
from interlock.workers.git.ref_names import OURS
from interlock.workers.git.results import Refusal
from interlock.workers.git.worktree import NotAWorktree, Worktree

REASON = "reason.json"
BUNDLE = "workstream.bundle"
UNREAD = 1  # exit status of `git add --ignore-errors` when some files could not be read; the others were added


@dataclass(frozen=True, slots=True)
class ArchivedWorkstream:
    """The places where a failed or cancelled workstream is archived."""

    ref: str
    sha: str
    bundle: Path
    reason: Path


def archive(
    failed: Worktree, directory: Path, reason: Mapping[str, Any], *, lock_seconds: float = LOCK_SECONDS
) -> ArchivedWorkstream | Refusal:
    """Archive a workstream's branch and working files (except ignored ones), then remove both.

    A repeated call returns the same answer. The working files become a commit on top of the branch, under
    `refs/interlock/archive/`. `workstream.bundle` holds all commits that the base branch lacks (`git fetch
    workstream.bundle '+refs/*:refs/*'` restores them); `reason.json` holds everything else.

    Args:
        failed: the workstream's worktree.
        directory: where bundle and reason go; one for each workstream.
        reason: what to write down, as JSON.
        lock_seconds: how long to wait for others that use the worktree or the repository.

    Returns:
        The archive's places, or a refusal when nothing is left to archive.

    Raises:
        RepositoryBusy: another process holds the lock for too long. Try again.
        GitFault: git failed; the message says how. Repair that and try again.
    """
    with contextlib.ExitStack() as work:
        try:
            locked = work.enter_context(worktree.hold(failed, timeout_seconds=lock_seconds))
        except NotAWorktree:
            return _archived_before(failed, directory, lock_seconds)
        # Before taking the repository's lock: if these files slow git down, other workstreams do not wait.
        if isinstance(taken := locked.with_new_commits(), Refusal):
            reason, taken = {**reason, "commits_not_kept": str(taken)}, locked
        try:
            sha, unread = _snapshot(taken, failed)
            reason = {**reason, "files_not_kept": unread} if unread else reason
        except fetch_commits.Unfit as unfit:
            reason, sha = {**reason, "files_not_kept": str(unfit)}, taken.tip
        git = work.enter_context(repository.hold(failed.repository, timeout_seconds=lock_seconds))
        if branches.tip(git, failed.branch) != taken.tip:
            raise RepositoryBusy(f"{failed.branch} moved while {failed.path} was being archived: try again")
        ref = f"refs/interlock/archive/{failed.branch.removeprefix(OURS)}/{sha[:12]}"
        archived = ArchivedWorkstream(ref, sha, directory / BUNDLE, directory / REASON)
        _store(git, failed, archived, reason)
        _remove(git, failed)
        return archived


def _snapshot(locked: LockedWorktree, failed: Worktree) -> tuple[str, str]:
    """A commit of the working files, and a text on the files that git could not read. It has the date of the last
    commit, so that the same state gives the same commit."""
    tree, unread = _tree(locked)
    date = locked.user_git.line("log", "-1", "--format=%cI", locked.tip, "--")
    words = trailers.message("What the workstream left", {trailers.WORKSTREAM: failed.branch})
    dated = locked.user_git.with_environment(GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)
    return dated.run("commit-tree", tree, "-p", locked.tip, "-F", "-", stdin=words).out.decode().strip(), unread


def _tree(locked: LockedWorktree) -> tuple[str, str]:
    """The working files as a tree of the user's repository. The commands' account hashes them in a directory of its
    own; from there they are taken like its other objects, but without strict checks: an archive never lands."""
    left = locked.git_directory / "left"
    inside.remove_tree(left)
    left.mkdir(mode=0o755)
    for each in (left, left / "objects"):
        each.mkdir(exist_ok=True)
        if locked.account:
            os.chown(each, locked.account.uid, locked.account.gid)
    private = locked.worktree_git(left.resolve()).with_environment(
        GIT_INDEX_FILE=str(left.resolve() / "index"),
        GIT_OBJECT_DIRECTORY=str(left.resolve() / "objects"),
        GIT_ALTERNATE_OBJECT_DIRECTORIES=str(locked.store),
    )
    inside.remove_pipes(locked.path)
    adding = (("read-tree", locked.tip), ("add", "--all", "--ignore-errors", "."))
    added = private.run_all(*adding, accept=(0, UNREAD))
    unread = [line for line in added.words.splitlines() if line.startswith("error: ")]
    if added.status and not unread:
        raise GitFault(f"git add in {locked.path} ended with {added.status}: {added.words}")
    tree = private.line("write-tree")
    source = fetch_commits.ObjectSource(locked.git_directory, f"{left.name}/objects")
    fetch_commits.take(
        locked.user_git,
        locked.repository.store,
        source,
        locked.git_directory / INCOMING,
        want=tree,
        have=locked.tip,
        strict=False,
    )
    inside.remove_tree(left)
    return tree, "\n".join(unread)


def _store(git: Git, failed: Worktree, archived: ArchivedWorkstream, reason: Mapping[str, Any]) -> None:
    git.run("update-ref", archived.ref, archived.sha)
    archived.bundle.parent.mkdir(parents=True, exist_ok=True)
    draft = archived.bundle.with_suffix(".new")
    base = branches.tip(git, failed.base_branch)
    git.run("bundle", "create", "--quiet", str(draft.absolute()), archived.ref, *([f"^{base}"] if base else []))
    draft.replace(archived.bundle)
    state_files.write(
        archived.reason,
        {"reason": dict(reason), "branch": failed.branch, "ref": archived.ref, "sha": archived.sha, "base": base},
    )


def _remove(git: Git, failed: Worktree) -> None:
    worktree.discard(git, failed.path)
    if tip := branches.tip(git, failed.branch):
        git.run("update-ref", "-d", f"refs/heads/{failed.branch}", tip)


def _archived_before(failed: Worktree, directory: Path, lock_seconds: float) -> ArchivedWorkstream | Refusal:
    found = state_files.read(directory / REASON)
    if found is None or found["branch"] != failed.branch:
        return Refusal(f"{failed.path} is not a worktree of {failed.branch}", "Nothing is left to archive")
    with repository.hold(failed.repository, lock_seconds) as git:
        if worktree.is_disposable(git, failed):
            _remove(git, failed)
    return ArchivedWorkstream(found["ref"], found["sha"], directory / BUNDLE, directory / REASON)
