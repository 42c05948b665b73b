"""Gives a worktree to one patch at a time, and removes the remains of abandoned patches."""

from uuid import UUID

from interlock.db.connection import transaction
from interlock.db.orchestration import patches
from interlock.workers.git import state_files, worktree
from interlock.workers.git.git_directories import MARK
from interlock.workers.git.worktree import NotAWorktree, Worktree
from interlock.workers.runtime import Runtime
from interlock.workflows.errors import InterlockError

AT_WORK = ("queued", "applied", "verified")


class WorktreeTaken(InterlockError):
    """Another patch is applied in the worktree and not committed yet. This one is tried again; if that goes on, look
    at the ledger entry that the message names."""


def uncommitted_patch(where: Worktree) -> UUID | None:
    """The ledger entry whose patch is applied but not committed in a worktree. Raises `NotAWorktree`."""
    with worktree.hold(where) as locked:
        mark = state_files.read(locked.git_directory / MARK)
        return UUID(mark["ledger_id"]) if mark and mark["head"] == locked.tip else None


def clear(runtime: Runtime, where: Worktree, ledger_id: UUID) -> None:
    """Make a worktree free for a patch: remove the remains of an abandoned one.

    Raises:
        WorktreeTaken: another patch is still in use there.
    """
    if (other := uncommitted_patch(where)) in (None, ledger_id):
        return
    with transaction(runtime.database) as connection:
        state = patches.state_of(connection, other)
    if state in AT_WORK:
        raise WorktreeTaken(f"{where.path}: the patch of {other} is {state}")
    worktree.restore(where)


def restore_after(where: Worktree, ledger_id: UUID, *, mine: bool = False) -> bool:
    """Restore a worktree unless another patch is in it (with `mine`: only if this patch is); whether it was done."""
    try:
        found = uncommitted_patch(where)
    except NotAWorktree:
        return False
    if found != ledger_id and (mine or found is not None):
        return False
    worktree.restore(where)
    return True
