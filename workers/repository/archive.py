"""A failed or cancelled workstream is kept for whoever asks why (SSOT 1.3.7, 4): a ref, a bundle, and the reason."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.repository import branches, naming, place, records, trailers, worktree
from workers.repository.git import Git, Identity
from workers.repository.lock import LOCK_SECONDS
from workers.repository.outcomes import Refusal
from workers.repository.worktree import NotAWorktree, Worktree

REASON = "reason.json"
BUNDLE = "workstream.bundle"


@dataclass(frozen=True, slots=True)
class Archived:
    """Where a workstream that failed or was cancelled is kept."""

    ref: str
    sha: str
    bundle: Path
    reason: Path


def archive(
    failed: Worktree, directory: Path, reason: Mapping[str, Any], *, lock_seconds: float = LOCK_SECONDS
) -> Archived | Refusal:
    """Keep a workstream's branch and working files (but ignored ones), then remove both. Again: the same answer.

    The files as they stand become a commit on top of the branch, under `refs/interlock/archive/`; `workstream.bundle`
    holds what the base branch has not (`git fetch workstream.bundle '+refs/*:refs/*'` brings it back), `reason.json`
    the rest.

    Args:
        failed: the workstream's worktree.
        directory: where bundle and reason go; one for each workstream.
        reason: what to write down, as JSON.
        lock_seconds: how long to wait for others at work there.

    Returns:
        Where it is kept, or a refusal when there is nothing left to keep.

    Raises:
        RepositoryBusy, GitFault: see there; try again.
    """
    with contextlib.ExitStack() as work:
        try:
            there, own = work.enter_context(worktree.hold(failed, timeout_seconds=lock_seconds))
        except NotAWorktree:
            return _kept_before(failed, directory, lock_seconds)
        git = work.enter_context(place.hold(failed.repository, timeout_seconds=lock_seconds))
        sha = _snapshot(there, own, failed)
        kept = Archived(
            f"{naming.archive_prefix(failed.branch)}/{sha[:12]}", sha, directory / BUNDLE, directory / REASON
        )
        _keep(git, failed, kept, reason)
        _remove(git, failed)
        return kept


def _snapshot(there: Git, own: Path, failed: Worktree) -> str:
    """A commit of the files as they stand, dated like the last one, so that the same state is the same commit."""
    private = there.given(GIT_INDEX_FILE=str(own / "interlock-index"))
    private.run("read-tree", "HEAD")
    private.run("add", "--all", "--ignore-errors", ".", accept=None)  # what cannot be read cannot be kept
    date = there.line("log", "-1", "--format=%cI", "HEAD", "--")
    words = trailers.message("What the workstream left", {trailers.WORKSTREAM: failed.branch})
    dated = private.given(GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date)
    tree, head = private.line("write-tree"), there.line("rev-parse", "HEAD")
    return dated.run("commit-tree", tree, "-p", head, "-F", "-", given=words).out.decode().strip()


def _keep(git: Git, failed: Worktree, kept: Archived, reason: Mapping[str, Any]) -> None:
    git.run("update-ref", kept.ref, kept.sha)
    kept.bundle.parent.mkdir(parents=True, exist_ok=True)
    begun = kept.bundle.with_suffix(".new")
    base = branches.tip(git, failed.base_branch)
    git.run("bundle", "create", "--quiet", str(begun.absolute()), kept.ref, *([f"^{base}"] if base else []))
    begun.replace(kept.bundle)
    records.write(
        kept.reason, {"reason": dict(reason), "branch": failed.branch, "ref": kept.ref, "sha": kept.sha, "base": base}
    )


def _remove(git: Git, failed: Worktree) -> None:
    worktree.discard(git, failed.path)
    if tip := branches.tip(git, failed.branch):
        git.run("update-ref", "-d", f"refs/heads/{failed.branch}", tip)


def _kept_before(failed: Worktree, directory: Path, lock_seconds: float) -> Archived | Refusal:
    found = records.read(directory / REASON)
    if found is None or found["branch"] != failed.branch:
        return Refusal(f"{failed.path} is no worktree of {failed.branch}", "Nothing is left to archive")
    with place.hold(failed.repository, Identity(), lock_seconds) as git:
        if worktree.ours(git, failed):
            _remove(git, failed)
    return Archived(found["ref"], found["sha"], directory / BUNDLE, directory / REASON)
