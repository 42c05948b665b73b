"""Put a patch into its worktree, and commit it once its tests have passed (SSOT 2.2.4: queued → … → committed)."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.repository import records, trailers, worktree
from workers.repository.checking import Checked, PatchPolicy, check
from workers.repository.git import Git, Identity
from workers.repository.lock import LOCK_SECONDS
from workers.repository.outcomes import Conflict, Refusal
from workers.repository.patch import encode
from workers.repository.staging import TRIES, Staged, Try, links, stage
from workers.repository.worktree import MARK, Worktree


@dataclass(frozen=True, slots=True)
class Applied:
    """The patch is in the worktree; `way` is the try that did it, `already` if an earlier call did."""

    way: str
    paths: tuple[str, ...]
    sha: str | None = None
    """The commit it is in, if it had come that far."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The patch is a commit of the workstream's branch."""

    sha: str
    already: bool = False


def apply(
    where: Worktree,
    patch_text: str,
    ledger_id: str,
    *,
    policy: PatchPolicy | None = None,
    tries: Sequence[Try] = TRIES,
    lock_seconds: float = LOCK_SECONDS,
) -> Applied | Conflict | Checked | Refusal:
    """Apply a patch to a worktree and its index, all of it or nothing.

    It is tried in an index of its own first, in up to three ways; only what fits is then written, in one step that git
    takes back by itself when a file is in the way.

    Args:
        where: the workstream's worktree, with no uncommitted change of its own.
        patch_text: the diff.
        ledger_id: the patch's ledger entry, by which a retry knows what it did before.
        policy: what the patch may do.
        tries: which ways to try, in turn.
        lock_seconds: how long to wait for others at work there.

    Returns:
        `Applied`; `Conflict`, naming the files; `Checked` if the policy forbids it; `Refusal` if other work is in
        the way.

    Raises:
        NotAWorktree, RepositoryBusy, GitFault: see there; try again.
    """
    policy = policy or PatchPolicy()
    with worktree.hold(where, timeout_seconds=lock_seconds) as (git, directory):
        if sha := trailers.find(git, trailers.PATCH, ledger_id, "HEAD"):  # all of it: it may be merged by now
            return Applied("already", (), sha)
        mark = _Mark(directory / MARK, git.line("rev-parse", "HEAD"), ledger_id, encode(patch_text))
        if (begun := mark.read()) is not None:
            return _resume(git, mark, begun)
        if changed := git.records("status", "--porcelain", "-z", "--no-renames", "--untracked-files=no"):
            return Refusal(
                f"{where.path} has changes that no patch made: {', '.join(each[3:] for each in changed[:5])}",
                "Commit them, or restore the worktree",
            )
        checked = check(patch_text, policy, links=links(git))
        if not checked.passed:
            return checked
        touched = [path for each in checked.changes for path in each.paths]
        private = git.given(GIT_INDEX_FILE=str(directory / "interlock-index"))
        staged = stage(private, mark.patch, touched, policy, tries)
        return _enter(git, mark, staged) if isinstance(staged, Staged) else staged


@dataclass(frozen=True, slots=True)
class _Mark:
    """The note, beside the worktree's index, of the patch that is in it and not committed yet."""

    path: Path
    head: str
    ledger_id: str
    patch: bytes

    def read(self) -> dict[str, Any] | None:
        found = records.read(self.path)
        return found if found and found["head"] == self.head else None  # else it has been committed since

    def write(self, staged: Staged) -> None:
        records.write(
            self.path,
            {
                "ledger_id": self.ledger_id,
                "head": self.head,
                "digest": self.digest,
                "tree": staged.tree,
                "way": staged.way,
                "paths": staged.paths,
            },
        )

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.patch).hexdigest()


def _resume(git: Git, mark: _Mark, begun: Mapping[str, Any]) -> Applied | Refusal:
    if (begun["ledger_id"], begun["digest"]) != (mark.ledger_id, mark.digest):
        return Refusal(
            f"the patch of {begun['ledger_id']} is applied in {git.directory} and not committed",
            "Commit it, or restore the worktree",
        )
    # What stood there was clean before the mark was made: whatever is there now, that killed attempt or its tests made.
    git.run("read-tree", "--reset", "-u", begun["tree"])
    return Applied("already", tuple(begun["paths"]))


def _enter(git: Git, mark: _Mark, staged: Staged) -> Applied | Conflict:
    git.run("update-index", "-q", "--refresh", accept=(0, 1))
    # Asked first without writing: what would be overwritten is a conflict, and must not be taken for our own leftovers.
    said = git.run("read-tree", "-m", "-u", "--dry-run", "HEAD", staged.tree, accept=None)
    if said.status != 0:
        in_the_way = tuple(path for path in staged.paths if f"'{path}'" in said.err)
        return Conflict(in_the_way, said.words)
    mark.write(staged)
    git.run("read-tree", "-m", "-u", "HEAD", staged.tree)
    return Applied(staged.way, staged.paths)


def commit(
    where: Worktree,
    ledger_id: str,
    message: str,
    *,
    identity: Identity,
    also: Mapping[str, str] | None = None,
    lock_seconds: float = LOCK_SECONDS,
) -> Committed | Refusal:
    """Commit the applied patch, exactly as it was verified: what tests changed meanwhile is not in it.

    The commit carries `Interlock-Patch: <ledger id>`; a retry finds it by that and makes no second one. Restore the
    worktree afterwards if its tests write to files that git knows.

    Args:
        where: the workstream's worktree.
        ledger_id: the patch's ledger entry, the one it was applied under.
        message: the commit's words.
        identity: its author and committer.
        also: more trailers.
        lock_seconds: how long to wait for others at work there.

    Raises:
        NotAWorktree, RepositoryBusy, GitFault: see there; try again.
        BadInput: a trailer is not one line.
    """
    with worktree.hold(where, identity, lock_seconds) as (git, directory):
        begun, head = records.read(directory / MARK), git.line("rev-parse", "HEAD")
        if begun and begun["ledger_id"] == ledger_id and begun["head"] == head:
            words = trailers.message(message, {**(also or {}), trailers.PATCH: ledger_id})
            sha = git.run("commit-tree", begun["tree"], "-p", head, "-F", "-", given=words).out.decode().strip()
            # Tests may have left other things in the index; the branch must not move while they are there.
            git.run("read-tree", "--reset", begun["tree"])
            git.run("update-ref", "-m", f"interlock: patch {ledger_id}", f"refs/heads/{where.branch}", sha, head)
            (directory / MARK).unlink()
            return Committed(sha)
        if found := trailers.find(git, trailers.PATCH, ledger_id, "HEAD"):
            return Committed(found, already=True)
        return Refusal(f"no patch of {ledger_id} is applied in {where.path}", "Apply it first")
