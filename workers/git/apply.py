"""Puts a patch into its worktree, and commits it once its tests have passed (PATCH-3, PATCH-8)."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from interlock.workers.git import state_files, trailers, worktree
from interlock.workers.git.git_directories import MARK, LockedWorktree
from interlock.workers.git.lock import LOCK_SECONDS
from interlock.workers.git.patch import encode
from interlock.workers.git.policy import Checked, PatchPolicy, check
from interlock.workers.git.results import Committed, Conflict, Refusal
from interlock.workers.git.trial_index import TRIES, Staged, Try, links, stage
from interlock.workers.git.worktree import Worktree


@dataclass(frozen=True, slots=True)
class AppliedPatch:
    """The patch is in the worktree. `way`: the try that succeeded, or `already` if an earlier call applied it."""

    way: str
    paths: tuple[str, ...]
    sha: str | None = None
    """The patch's commit, if an earlier call has committed it."""


def apply(
    where: Worktree,
    patch_text: str,
    ledger_id: str,
    *,
    policy: PatchPolicy | None = None,
    tries: Sequence[Try] = TRIES,
    lock_seconds: float = LOCK_SECONDS,
) -> AppliedPatch | Conflict | Checked | Refusal:
    """Apply a patch to a worktree and its index, completely or not at all.

    It is first tried in a separate index, in up to three ways. Only a patch that fits is written, in one step that git
    undoes by itself if a file is in the way.

    Args:
        where: the workstream's worktree, without uncommitted changes of its own.
        patch_text: the diff.
        ledger_id: the patch's ledger entry, by which a retry recognizes its earlier work.
        policy: what the patch may do.
        tries: which ways to try, in turn.
        lock_seconds: how long to wait for others that use the worktree.

    Returns:
        `AppliedPatch`; `Conflict`, naming the files; `Checked` if the policy forbids it; `Refusal` if other work is in
        the way.

    Raises:
        NotAWorktree: there is no worktree at that path. Open it first.
        RepositoryBusy: another process holds the lock for too long. Try again.
        GitFault: git failed; the message says how. Repair that and try again.
    """
    policy = policy or PatchPolicy()
    with worktree.hold(where, timeout_seconds=lock_seconds) as held:
        if isinstance(locked := held.with_new_commits(), Refusal):
            return locked
        if sha := trailers.find(locked.user_git, trailers.PATCH, ledger_id, locked.tip):  # it may be merged by now
            return AppliedPatch("already", (), sha)
        mark = _Mark(locked.git_directory / MARK, locked.tip, ledger_id, encode(patch_text))
        if (record := mark.read()) is not None:
            return _resume(locked, mark, record)
        if changed := locked.changed():
            return Refusal(
                f"{where.path} has changes that no patch made: {', '.join(changed[:5])}",
                "Commit them, or restore the worktree",
            )
        checked = check(patch_text, policy, links=links(locked.user_git, locked.tip))
        if not checked.passed:
            return checked
        touched = [path for each in checked.changes for path in each.paths]
        staged = stage(locked.private, locked.tip, mark.patch, touched, policy=policy, tries=tries)
        return _check_out(locked, mark, staged) if isinstance(staged, Staged) else staged


@dataclass(frozen=True, slots=True)
class _Mark:
    """The record, beside the worktree's index, of the patch that is applied there and not committed yet."""

    path: Path
    head: str
    ledger_id: str
    patch: bytes

    def read(self) -> dict[str, Any] | None:
        found = state_files.read(self.path)
        return found if found and found["head"] == self.head else None  # otherwise it has been committed since

    def write(self, staged: Staged) -> None:
        record = {"ledger_id": self.ledger_id, "head": self.head, "digest": self.digest}
        state_files.write(self.path, record | asdict(staged))

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.patch).hexdigest()


def _resume(locked: LockedWorktree, mark: _Mark, record: Mapping[str, Any]) -> AppliedPatch | Refusal:
    if (record["ledger_id"], record["digest"]) != (mark.ledger_id, mark.digest):
        return Refusal(
            f"the patch of {record['ledger_id']} is applied in {locked.path} and not committed",
            "Commit it, or restore the worktree",
        )
    # The worktree was clean when the mark was made, so any changes come from the killed attempt or its tests.
    locked.share_objects(record["tree"])
    locked.reset(record["tree"])
    return AppliedPatch("already", tuple(record["paths"]))


def _check_out(locked: LockedWorktree, mark: _Mark, staged: Staged) -> AppliedPatch | Conflict:
    locked.share_objects(staged.tree)
    # Dry run first: a file that would be overwritten is a conflict, and must not be taken for our own leftovers.
    result = locked.run_in_worktree("read-tree", "-m", "-u", "--dry-run", locked.tip, staged.tree, accept=None)
    if result.status != 0:
        in_the_way = tuple(path for path in staged.paths if f"'{path}'" in result.err)
        return Conflict(in_the_way, result.words)
    mark.write(staged)
    locked.run_and_copy_index("read-tree", "-m", "-u", locked.tip, staged.tree)
    return AppliedPatch(staged.way, staged.paths)


def commit(
    where: Worktree, ledger_id: str, message: str, *, also: Mapping[str, str] | None = None
) -> Committed | Refusal:
    """Commit the applied patch exactly as it was verified, without later changes by tests.

    The commit has the trailer `Interlock-Patch: <ledger id>`, by which a retry finds it, and makes no other. Restore
    the worktree afterwards if its tests write to tracked files.

    Args:
        where: the workstream's worktree.
        ledger_id: the ledger entry that the patch was applied under.
        message: the commit message.
        also: more trailers.

    Raises:
        NotAWorktree: there is no worktree at that path. Open it first.
        RepositoryBusy: another process holds the lock for too long. Try again.
        GitFault: git failed; the message says how. Repair that and try again.
        BadInput: a trailer is not one line.
    """
    with worktree.hold(where) as held:
        if isinstance(locked := held.with_new_commits(), Refusal):
            return locked
        mark, head, git = locked.git_directory / MARK, locked.tip, locked.user_git
        record = state_files.read(mark)
        if record and record["ledger_id"] == ledger_id and record["head"] == head:
            words = trailers.message(message, {**(also or {}), trailers.PATCH: ledger_id})
            sha = git.run("commit-tree", record["tree"], "-p", head, "-F", "-", stdin=words).out.decode().strip()
            # Tests may have left other changes in the index; they must be gone before the branch moves.
            locked.run_and_copy_index("read-tree", "--reset", record["tree"])
            git.run("update-ref", "-m", f"interlock: patch {ledger_id}", f"refs/heads/{where.branch}", sha, head)
            locked.at_commit(sha)
            mark.unlink()
            return Committed(sha)
        if found := trailers.find(git, trailers.PATCH, ledger_id, head):
            return Committed(found, already=True)
        return Refusal(f"no patch of {ledger_id} is applied in {where.path}", "Apply it first")
